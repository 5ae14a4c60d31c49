#pragma once

#include "assay/operators/engine/pair_loss.h"

/// Losses that are a parabola near 0 and a line beyond a knee, of one slope where they meet: whichever side
/// of it a kernel takes, the values differ by the square of its rounding.
namespace assay {

/// x^2 / 2 up to the knee
template <class T>
T huber(const T& x, const T& knee) {
  const T size = abs(x), half = T(0.5);
  return size <= knee ? half * size * size : knee * (size - half * knee);
}
template <class T>
T huber_slope(const T& x, const T& knee) {
  return abs(x) <= knee ? x : sign(x) * knee;
}

}  // namespace assay
