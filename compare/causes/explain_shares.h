#pragma once

#include <vector>

#include "assay/compare/causes/nearby_tensors.h"
#include "assay/compare/causes/values/failing_pair.h"

namespace assay {

/// Explains a sum over ranks by how often each rank's addend counts in it: that of one rank only, each by a
/// factor of its own.
/// @param actual   the side of the pair's actual tensor
/// @param addends  the recorded addends of the sum
void explain_shares(const Dump& actual, const LogicalTensor& addends, const FailingPair&,
                    std::vector<Diagnosis>& found);

}  // namespace assay
