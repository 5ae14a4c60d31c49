#pragma once

#include "assay/golden/arithmetic.h"
#include "assay/golden/ordered_matmul.h"

namespace assay {

/// Where the error model is quick: no more than what accumulate() allows, by products of matrices.
void quick_products(const OrderedMatmul<Bound>&);

/// A matmul whose sums are those of sum() at every level.
template <class T>
void products(const OrderedMatmul<T>& of) {
  if constexpr (std::is_same_v<T, float> || std::is_same_v<T, double>) {
    if (SummationScope::current() == nullptr) return multiply(of);
  }
  const std::int64_t terms = of.last.x == nullptr ? of.K : of.K + 1;
  if constexpr (std::is_same_v<T, Bound>) {
    const ErrorModel& device = ErrorScope::current();
    if (device.quick && !device.accumulator && !device.own) return quick_products(of);
    std::vector<Bound> of_one(static_cast<std::size_t>(terms));
    for (std::int64_t m = 0; m < of.M; ++m) {
      for (std::int64_t n = 0; n < of.N; ++n) {
        for (std::int64_t k = 0; k < of.K; ++k) of_one[static_cast<std::size_t>(k)] = of.a(m, k) * of.b(k, n);
        if (of.last.x != nullptr) of_one.back() = of.last(m, n);
        of.y(m, n) = accumulate(ErrorScope::current(), of_one);
      }
    }
    return;
  }
  for (std::int64_t m = 0; m < of.M; ++m) {
    for (std::int64_t n = 0; n < of.N; ++n) {
      of.y(m, n) =
          sum<T>(terms, [&](std::int64_t k) { return k < of.K ? of.a(m, k) * of.b(k, n) : of.last(m, n); });
    }
  }
}

}  // namespace assay
