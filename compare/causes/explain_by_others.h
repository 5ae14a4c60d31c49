#pragma once

#include <vector>

#include "assay/compare/causes/nearby_tensors.h"
#include "assay/compare/causes/values/failing_pair.h"
#include "assay/compare/flow/expected_value.h"

/// Explanations of a failing tensor by others that were recorded beside it. Each adds what holds.
namespace assay {

/// It is the tensor of another step, micro-batch or module, or that before the step, or has a multiple of
/// one.
/// @param beside  the side whose tensor should be there
void explain_by_others(const NearbyTensors& beside, const Identity& own, const FailingPair&,
                       std::vector<Diagnosis>& found);

struct RecordedBeside {
  const NearbyTensors &actual, &reference;
};
/// A term of it counts another number of times, or the value went to another module.
/// @param right  by what the actual side made it of; FailingPair::reference has its values
void explain_by_flow(const RecordedBeside&, const Identity& own, const FailingPair&, const RightValue& right,
                     std::vector<Diagnosis>& found);

/// Tokens or labels of another step or micro-batch.
void explain_integers(const NearbyTensors& reference, const Identity& own, const TensorSource& actual,
                      const TensorSource& expected, std::vector<Diagnosis>& found);

}  // namespace assay
