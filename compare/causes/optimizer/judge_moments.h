#pragma once

#include "assay/compare/causes/optimizer/least_squares.h"
#include "assay/compare/causes/optimizer/step_faults.h"

namespace assay {

/// Finds elements that still have the value from before the step: all of them, or a contiguous part.
/// @param what  the name of the tensor: "exp_avg"
/// @param over  the errors against the right values
std::optional<StepFault> not_updated(const TensorSource& after, const TensorSource* before, const char* what,
                                     const StepErrors& over);

/// Whether an estimate equals the target, up to the error of the fit and the rounding of a program's numbers.
bool is_near(const Estimate&, double target, double relative);
/// "0.1", "6.67016": at most 6 digits.
std::string brief(const Estimate&, double relative);

/// Fills the first two stages. Returns the gradient that was used, if it is known.
std::optional<UsedGradient> judge_moments(const ParameterStep&, const ReferenceRule&, double clip,
                                          const std::vector<OtherGradient>& others, JudgedStep&);

}  // namespace assay
