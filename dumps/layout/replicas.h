#pragma once

#include <vector>

#include "assay/dumps/layout/merge.h"

namespace assay {

/// One rank's copy of, or addend to, a part of a tensor.
struct RankCopy {
  const Record* record;
  Tensor tensor;
};

/// Compares the copies of one box that must be bitwise equal: those whose coordinates differ in no partial
/// dimension. Appends to `mismatches` and marks the mesh dimensions over which ranks disagree.
void compare_replicas(std::vector<RankCopy>&, const Mesh&, std::vector<ReplicaMismatch>& mismatches,
                      std::vector<bool>& disagreeing);

/// What is to be added up over the partial mesh dimensions, and over those marked in `also`; of equal copies
/// the lowest rank's is taken. Without a partial dimension: the copy of the lowest rank.
std::vector<Tensor> addends_of(const std::vector<RankCopy>&, const std::vector<bool>& also);

/// The exact sum of tensors of one shape and dtype, rounded once. Throws Error where it is no integer of the
/// dtype, and for booleans.
Tensor exact_sum(const std::vector<Tensor>&);

}  // namespace assay
