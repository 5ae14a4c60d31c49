#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>

#include "assay/compare/causes/optimizer/parameter_steps.h"
#include "assay/compare/causes/values/elements.h"

namespace assay {

/// Where Adam's epsilon stands: sqrt(v / c2) + eps; sqrt(v / c2 + eps); (sqrt(v) + eps) / sqrt(c2), with
/// c2 = 1 - beta2^t.
enum class EpsilonPlace : std::uint8_t { outside, inside, hat };

/// Adam with numbers: m' = b1 m + (1 - b1) g', v' = b2 v + (1 - b2) g'^2,
/// p' = (1 - lr decay) p - lr m' / c1 / (sqrt(v' / c2) + eps), g' = clip g + l2 p. OPERATORS.md, adam and
/// adamw.
struct AdamRule {
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8;
  bool corrects = true;  ///< c1 = 1 - beta1^t; else 1
  EpsilonPlace place = EpsilonPlace::outside;

  bool operator==(const AdamRule&) const = default;
  double correction1(std::int64_t t) const;
  double correction2(std::int64_t t) const;
  /// The update is lr rate(t) m' / (sqrt(v') + floor(t)); of `inside` sqrt(v' + floor(t)).
  double rate(std::int64_t t) const;
  double floor(std::int64_t t) const;
};

/// g' = clip g + l2 p.
struct UsedGradient {
  double clip = 1, l2 = 0;
};

/// The form of the update: p' = kept p - rate m' / (sqrt(v') + floor), or / sqrt(v' + floor).
struct UpdateForm {
  double kept = 1, rate = 0, floor = 0;
  bool inside = false;
};

/// The errors of each stage, computed from the recorded values of the same side. Every element is judged by
/// the rounding of any kernel (adam_rule.cpp).
StepErrors first_moment_errors(const StepTensors&, const AdamRule&, const UsedGradient&);
StepErrors second_moment_errors(const StepTensors&, const AdamRule&, const UsedGradient&);
StepErrors update_errors(const StepTensors&, const AdamRule&, std::int64_t t, const UpdateForm&);

/// m' / (sqrt(v') + floor), 0 where both are 0.
double direction(double first, double second, const UpdateForm&);

/// The error that flushing to zero makes: the smallest normal float32.
inline constexpr double flush_error = 0x1p-126;

/// The relative errors of 1 - beta and 1 - beta^t in a kernel.
double error_of_rest(double beta, double u);
double error_of_correction(double beta, std::int64_t t, double u);
/// The relative error of a tensor that was recorded in a narrower dtype than the arithmetic; else 0.
double storage_error(const std::optional<TensorSource>&, double u);

}  // namespace assay
