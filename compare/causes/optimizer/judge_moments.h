#pragma once

#include "assay/compare/causes/optimizer/least_squares.h"
#include "assay/compare/causes/optimizer/step_faults.h"

namespace assay {

/// Values from before the step, in all elements or in some that follow each other.
/// @param what  "exp_avg"
/// @param over  of the right values
std::optional<StepFault> not_updated(const TensorSource& after, const TensorSource* before, const char* what,
                                     const StepErrors& over);

/// Equal but for the fit and for the rounding of a program's own numbers.
bool is_near(const Estimate&, double target, double relative);
/// "0.1", "6.67016": at most 6 digits.
std::string brief(const Estimate&, double relative);

/// Fills the first two stages. Returns the gradient that was used, where it is known.
std::optional<UsedGradient> judge_moments(const ParameterStep&, const ReferenceRule&, double clip,
                                          const std::vector<OtherGradient>& others, JudgedStep&);

}  // namespace assay
