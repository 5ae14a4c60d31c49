#pragma once

#include <vector>

#include "assay/dumps/layout/merge.h"

namespace assay {

/// One rank's copy of, or addend to, a part of a tensor.
struct RankCopy {
  const Record* record;
  Tensor tensor;
};

/// Throws Error unless the records of a tensor say the same of its dtype, shape and placements.
void check_agreement(const Dump&, const LogicalTensor&);

/// Throws Error unless the ranks that hold one box have between them every coordinate of the partial mesh
/// dimensions. A copy will do: of equal addends one is enough.
void check_addends(const std::vector<RankCopy>&, const Dump&, const LogicalTensor&);

/// Compares the copies of one box that must be bitwise equal: copies with equal coordinates in all partial
/// dimensions. Appends to `mismatches` and marks the mesh dimensions over which ranks disagree.
void compare_replicas(std::vector<RankCopy>&, const Mesh&, std::vector<ReplicaMismatch>& mismatches,
                      std::vector<bool>& disagreeing);

/// Returns the addends over the partial mesh dimensions, and over the dimensions marked in `also`. Of equal
/// copies, the lowest rank counts. Without a partial dimension it is the copy of the lowest rank.
std::vector<const RankCopy*> addends_among(const std::vector<RankCopy>&, const std::vector<bool>& also);
std::vector<Tensor> addends_of(const std::vector<RankCopy>&, const std::vector<bool>& also);

/// Returns the exact sum of tensors of one shape and dtype, rounded once. Throws Error if the sum of integers
/// leaves the dtype, and for booleans.
Tensor exact_sum(const std::vector<Tensor>&);

}  // namespace assay
