#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

#include "assay/golden/arithmetic.h"

/// What routers and their losses share: scores of one token's experts, and which are the largest.
namespace assay {

/// Keeps the sum of scores that all underflow from being a divisor 0, as Megatron-LM and HF do.
inline constexpr double least_total = 1e-20;

/// The positions 0 .. n-1 by falling value(i): NaN first (torch.topk), of equals the lower position.
template <class F>
std::vector<std::int64_t> by_falling(std::int64_t n, F value) {
  std::vector<std::int64_t> order(static_cast<std::size_t>(n));
  std::iota(order.begin(), order.end(), std::int64_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::int64_t i, std::int64_t j) {
    const auto &a = value(i), &b = value(j);
    return isnan(a) || isnan(b) ? isnan(a) && !isnan(b) : b < a;
  });
  return order;
}

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
