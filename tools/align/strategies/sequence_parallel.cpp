// Sequence parallel (Korthikanti 2022, arXiv 2205.05198). Between the regions of tensor parallel every rank
// of tp holds its tokens, in order: norms, router, residual. Collectives over tp: all-gather along the tokens
// into a region, reduce-scatter SUM out of it; in backward the other way. Gradients of what all ranks hold
// (norms, router, MLA's down-projections) are of the rank's tokens, and summed over tp. No scaling.
#include "assay/align/strategies/sequence_parallel.h"

namespace assay::align {

Value gather_sequence(Machine& on, const std::string& module, const Value& x) {
  return on.move(module, {Movement::Kind::all_gather, Axis::tp}, x);
}

Value scatter_sequence(Machine& on, const std::string& module, const Value& x) {
  return on.move(module, {Movement::Kind::reduce_scatter, Axis::tp}, x);
}

}  // namespace assay::align
