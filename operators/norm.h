#pragma once

#include "assay/golden/arithmetic.h"

/// What norms that take off a mean share: h = (x - mean) rstd over one group of n elements.
namespace assay {

template <class T>
struct Moments {
  T mean, rstd;
};

/// The mean of x(i), i < n, and 1 / sqrt(var + eps) with the biased variance.
template <class T, class F>
Moments<T> moments(std::int64_t n, F x, const T& eps) {
  const T count = number<T>(n);
  const T mean = sum<T>(n, x) / count;
  const T squares = sum<T>(n, [&](auto i) {
    const T deviation = x(i) - mean;
    return deviation * deviation;
  });
  return {mean, T(1) / sqrt(squares / count + eps)};
}

/// grad_x(i) = rstd (v - mean(v) - h mean(v h)), v(i) = w grad_y.
template <class T, class V, class H, class F>
void normalised_gradient(std::int64_t n, V v, H h, const T& rstd, F grad_x) {
  const T count = number<T>(n);
  const T mean_v = sum<T>(n, v) / count;
  const T mean_vh = sum<T>(n, [&](auto i) { return v(i) * h(i); }) / count;
  for (std::int64_t i = 0; i < n; ++i) grad_x(i) = rstd * (v(i) - mean_v - h(i) * mean_vh);
}

}  // namespace assay
