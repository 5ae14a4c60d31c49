#pragma once

#include <optional>

#include "assay/compare/causes/optimizer/adam_rule.h"
#include "assay/compare/causes/optimizer/least_squares.h"

namespace assay {

/// A moment as a sum of recorded tensors: m' = kept m + gain g + l2_gain p, with every element within
/// rounding. Forms with fewer terms are tried first.
struct MomentFit {
  Estimate kept, gain, l2_gain, other_gain;
  StepErrors errors;
};

std::optional<MomentFit> fit_first_moment(const StepTensors&);
/// m' - beta1 m = gain g + other_gain x. At the second step m is a multiple of the gradient of the first:
/// beta1 has to be known.
std::optional<MomentFit> fit_other_gradient(const StepTensors&, double beta1, const TensorSource& x);
/// v' = kept v + gain g'^2.
std::optional<MomentFit> fit_second_moment(const StepTensors&, const UsedGradient&);

/// p' = kept p - rate m' / (sqrt(v') + floor).
struct UpdateFit {
  Estimate kept, rate, floor;
};
/// With the floor of `form`.
std::optional<UpdateFit> fit_update(const StepTensors&, const UpdateForm& form);
/// With any floor outside of the root.
std::optional<UpdateFit> fit_free_update(const StepTensors&);

}  // namespace assay
