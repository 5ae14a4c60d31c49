#pragma once

#include <string>
#include <vector>

#include "assay/align/placement/machine.h"

/// What attention and feed-forward blocks do at their ends where matrices are cut (docs/semantics.md D3, D4).
/// Between the two ends a rank of tp has its heads, or its columns.
namespace assay::align {

/// What the columns are multiplied with: all tokens.
/// Tensor parallel: the tokens are replicated; in backward the ranks' gradients are summed.
/// Sequence parallel: each rank has its tokens; all-gather, in backward reduce-scatter.
Value enter_region(Machine&, const std::string& module, const Value& x);
/// The sum of what the rows give.
/// Tensor parallel: all-reduce. Sequence parallel: reduce-scatter; each rank keeps its tokens.
Value leave_region(Machine&, const std::string& module, const Value& partial_sum);

/// The two halves of entering, where something is between them: all tokens on every rank, and in backward the
/// sum of the ranks' gradients.
Value all_tokens(Machine&, const std::string& module, const Value& x);
Value sum_gradients(Machine&, const std::string& module, const Value& x);

/// Where a matrix [out, in] is cut: columns of the layer are rows of the matrix.
std::vector<Sharding> column_parallel();
std::vector<Sharding> row_parallel();

/// What tensor parallel ranks have twice without sequence parallel, each token once: the router's outputs on
/// their way to the experts, and back.
Value split_tokens(Machine&, const std::string& module, const Value& x);
Value gather_tokens(Machine&, const std::string& module, const Value& x);

/// What is between the blocks: tokens, cut by context parallel and sequence parallel.
MeshPlacement residual_placement(const Mesh&);

}  // namespace assay::align
