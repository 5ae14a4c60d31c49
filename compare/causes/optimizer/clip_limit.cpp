#include "assay/compare/causes/optimizer/clip_limit.h"

#include "assay/golden/bound.h"
#include "assay/golden/evidence.h"

namespace assay {

double ClipLimit::error(double norm, double norm_error, DType arithmetic) const {
  const ErrorScope scope({unit_roundoff(arithmetic), min_subnormal(arithmetic)});
  const Bound coefficient =
      rounded_constant(max_norm) / (Bound(norm, norm * norm_error) + rounded_constant(epsilon));
  return coefficient.error / std::abs(coefficient.value);
}

std::optional<ClipLimit> limit_behind(const Estimate& coefficient, const KnownNorm& norm,
                                      const std::array<double, 2>& epsilons) {
  for (const double epsilon : epsilons) {
    const Estimate behind = coefficient.scaled(norm.value + epsilon);
    const auto max_norm = short_number(behind, behind.reach + norm.error * std::abs(behind.value));
    if (max_norm) return ClipLimit{*max_norm, epsilon};
  }
  return {};
}

Estimate as_stored(const Estimate& coefficient, DType stored, DType arithmetic) {
  const double nearest = round_to(stored, coefficient.value);
  const bool is_narrow = unit_roundoff(stored) > unit_roundoff(arithmetic);
  const bool may_be =
      std::abs(nearest - coefficient.value) <= coefficient.reach + improbable * coefficient.sigma;
  return is_narrow && may_be ? Estimate{nearest, 0} : coefficient;
}

}  // namespace assay
