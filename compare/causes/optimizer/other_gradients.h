#pragma once

#include <vector>

#include "assay/compare/causes/optimizer/parameter_steps.h"
#include "assay/compare/causes/optimizer/step_faults.h"

namespace assay {

/// Gradients beside the right one that the actual side recorded: that of the step before, shares of ranks and
/// micro-batches before they were added up, those of other parameters of the same shape.
std::vector<OtherGradient> other_gradients(const ParameterStep&, const RecordedSteps&, const Sides&);

}  // namespace assay
