#pragma once

#include <array>
#include <cmath>
#include <optional>

#include "assay/compare/causes/optimizer/parameter_steps.h"
#include "assay/compare/causes/values/least_squares.h"

namespace assay {

/// What torch.nn.utils.clip_grad_norm_ adds to the norm, and MindFormers does not.
inline constexpr double clip_epsilon = 1e-6;

/// clip = min(1, max_norm / (norm + epsilon)).
struct ClipLimit {
  double max_norm = 0;  ///< infinite: it never clips; 0: not known
  double epsilon = clip_epsilon;
  bool is_known() const { return max_norm > 0; }
  bool is_finite() const { return is_known() && std::isfinite(max_norm); }
  double of(double norm) const { return max_norm / (norm + epsilon); }
  /// How far a program's own coefficient may be off, relative, by its rounding and by that of the norm.
  double error(double norm, double norm_error, DType arithmetic) const;
  /// Its own epsilon, and that of other frameworks.
  std::array<double, 2> epsilons() const { return {epsilon, clip_epsilon - epsilon}; }
};

/// Of the gradients of a step: recorded, else computed.
struct KnownNorm {
  double value = 0, error = 0;   ///< the error is relative
  DType dtype = DType::float64;  ///< of what programs make of it
};

/// The limit behind a coefficient, which is a short number; nothing if there is none.
/// @param epsilons  in the order in which they are tried
std::optional<ClipLimit> limit_behind(const Estimate& coefficient, const KnownNorm&,
                                      const std::array<double, 2>& epsilons = ClipLimit().epsilons());

/// A coefficient that was fitted, as a program has it that stores it in this dtype, if it may be such a
/// number.
Estimate as_stored(const Estimate& coefficient, DType stored, DType arithmetic);

}  // namespace assay
