#pragma once

#include <cmath>
#include <type_traits>

#include "assay/golden/arithmetic.h"

namespace assay {

/// 1 / (1 + exp(-x)), without overflow
/// @return  in Bound 0 is within the error where a kernel that writes it so (torch) has an infinite exp(-x)
template <class T>
T sigmoid(const T& x) {
  if constexpr (is_lanes<T>) {
    const T e = exp(by_sign(x, x, -x)), total = T(1) + e;
    return by_sign(x, e / total, T(1) / total);
  } else if (x < T(0)) {
    const T e = exp(x);
    const T s = e / (T(1) + e);
    if constexpr (std::is_same_v<T, Bound>) {
      const ErrorModel& device = ErrorScope::current();
      if (!device.own && (e.value - e.error) * largest_finite(device) < 1)
        return {s.value, s.error + std::abs(s.value)};
    }
    return s;
  }
  return T(1) / (T(1) + exp(-x));
}

/// s (1 - s), the difference without cancellation as sigmoid(-x).
template <class T>
T sigmoid_slope(const T& x) {
  const T s = stored(sigmoid<T>(x));
  return s * without_cancellation<T>([&] { return sigmoid<T>(-x); }, [&] { return T(1) - s; });
}

/// x sigmoid(x). What is not fused (jax.nn.silu) stores each step.
template <class T>
T silu(const T& x) {
  return x * stored(sigmoid(x));
}

/// silu'(x) = s (1 + x (1 - s)), s = sigmoid(x); of x s by the rule of products it is s + x s (1 - s).
template <class T>
T silu_slope(const T& x) {
  const T s = stored(sigmoid(x));
  const T complement =
      without_cancellation<T>([&] { return stored(sigmoid(-x)); }, [&] { return stored(T(1) - s); });
  return without_cancellation<T>([&] { return s * stored(T(1) + stored(x * complement)); },
                                 [&] { return stored(s) + stored(stored(x) * stored(s * complement)); });
}

}  // namespace assay
