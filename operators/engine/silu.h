#pragma once

#include "assay/golden/arithmetic.h"

namespace assay {

/// 1 / (1 + exp(-x)), without overflow
template <class T>
T sigmoid(const T& x) {
  if (x < T(0)) {
    const T e = exp(x);
    return e / (T(1) + e);
  }
  return T(1) / (T(1) + exp(-x));
}

/// x sigmoid(x)
template <class T>
T silu(const T& x) {
  return x * sigmoid(x);
}

/// silu'(x) = s (1 + x (1 - s)), s = sigmoid(x)
template <class T>
T silu_slope(const T& x) {
  const T complement =
      without_cancellation<T>([&] { return sigmoid(-x); }, [&] { return T(1) - sigmoid(x); });
  return sigmoid(x) * (T(1) + x * complement);
}

}  // namespace assay
