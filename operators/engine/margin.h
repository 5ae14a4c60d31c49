#pragma once

#include "assay/golden/arithmetic.h"

/// Losses that are 0 where a margin is kept.
namespace assay {

/// The gradient g of max(x, 0), which is g at 0 and 0 at NaN as in torch.clamp_min; in Bound with all of it,
/// where x may be on either side.
template <class T>
T gated(const T& x, const T& g) {
  return g * stepped<T>(x, [](double v) { return v >= 0 ? 1. : 0.; });
}

/// What a target of 1, -1 or another number makes of a loss (torch.nn.functional.hinge_embedding_loss: one
/// that is neither counts as both).
constexpr bool is_similar(std::int64_t target) {
  return target != -1;
}
constexpr bool is_other(std::int64_t target) {
  return target != 1;
}

}  // namespace assay
