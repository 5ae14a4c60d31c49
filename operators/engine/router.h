#pragma once

#include <cstdint>
#include <vector>

#include "assay/operators/engine/order.h"

/// What routers and their losses share: scores of one token's experts, and which are the largest.
namespace assay {

/// Keeps the sum of scores that all underflow from being a divisor 0, as Megatron-LM and HF do.
inline constexpr double least_total = 1e-20;

/// exp(z_i - max z), and their sum.
template <class T>
struct Exponentials {
  template <class F>
  Exponentials(std::int64_t n, F z) {
    for (std::int64_t i = 0; i < n; ++i) largest = i == 0 ? z(i) : maximum<T>(largest, z(i));
    for (std::int64_t i = 0; i < n; ++i) e.push_back(exp(z(i) - largest));
    total = sum<T>(n, [&](auto i) { return (*this)[i]; });
  }
  const T& operator[](std::int64_t i) const { return e[static_cast<std::size_t>(i)]; }

  std::vector<T> e;
  T largest = T(0), total = T(0);
};

template <class T, class F>
std::vector<T> softmax_of(std::int64_t n, F z) {
  Exponentials<T> exponentials(n, z);
  for (T& e : exponentials.e) e /= exponentials.total;
  return std::move(exponentials.e);
}

}  // namespace assay
