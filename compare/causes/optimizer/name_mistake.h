#pragma once

#include <string>
#include <vector>

#include "assay/compare/causes/optimizer/step_mistakes.h"

namespace assay {

/// A rule that makes what the right one does not.
struct MadeBy {
  const StepRule &right, &used;
  std::string of_gradient;  ///< OtherGradient::text
  std::string alone;        ///< the one state that shows it; empty: all do
  double residual = 0;
};
/// Names it by the settings that differ: one fault, and a second where the weight decay is another, too.
std::vector<StepFault> name_mistake(const MadeBy&);

/// Finds elements that are what they were before the step: all of them, or a contiguous part.
/// @param what  the name of the tensor: "exp_avg"
/// @param over  the errors against the right values
std::optional<StepFault> unchanged_elements(const TensorSource& after, const TensorSource& before,
                                            const std::string& what, const StepErrors& over);

}  // namespace assay
