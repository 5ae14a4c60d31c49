#pragma once

#include "assay/golden/arithmetic.h"
#include "assay/operators/engine/silu.h"

/// log(1 + exp(x)) as torch has it: x itself above a threshold.
namespace assay {

/// torch.nn.functional.softplus
inline constexpr double softplus_threshold = 20;

template <class T>
T softplus(const T& x, const T& threshold = T(softplus_threshold)) {
  // max(x, 0) + log1p(exp(-|x|)): no overflow, nothing cancels.
  return threshold < x ? x : maximum(x, T(0)) + log1p(exp(-abs(x)));
}

template <class T>
T softplus_slope(const T& x, const T& threshold = T(softplus_threshold)) {
  return threshold < x ? T(1) : sigmoid<T>(x);
}

}  // namespace assay
