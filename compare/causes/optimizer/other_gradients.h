#pragma once

#include <string>
#include <vector>

#include "assay/compare/causes/optimizer/parameter_steps.h"

namespace assay {

/// A gradient that a program may have used by mistake.
struct OtherGradient {
  TensorSource tensor;
  std::string text;  ///< "the gradient of the step before", "the share of rank 1 alone"
};

/// Returns the recorded gradients of the actual side that a program may have used by mistake: the gradient of
/// the step before, shares of ranks and micro-batches before their sum, gradients of other parameters of the
/// same shape.
std::vector<OtherGradient> other_gradients(const ParameterStep&, const RecordedSteps&, const Sides&);

}  // namespace assay
