#pragma once

#include <cstdint>
#include <span>
#include <type_traits>
#include <vector>

#include "assay/golden/arithmetic.h"
#include "assay/golden/bound.h"
#include "assay/golden/ordered_matmul.h"

namespace assay {

/// Where the error model is quick: no more than what accumulate() allows, by products of matrices.
/// @param terms_of_rows  how many terms the sums of row m have, the others being zero; empty: K
void quick_products(const OrderedMatmul<Bound>&, std::span<const std::int64_t> terms_of_rows = {});

/// Such sums whose terms come in parts, one after the other. Values and errors are those of all parts, each
/// as accurate as those of one.
class QuickSums {
 public:
  QuickSums(std::int64_t M, std::int64_t N);
  /// Adds a b, for rows from `first` on; y and last take no part.
  void add(std::int64_t first, const OrderedMatmul<Bound>&);
  /// The sums of a row, side by side.
  void row(std::int64_t m, std::int64_t terms, Bound* to) const;
  Bound sum(std::int64_t m, std::int64_t n, std::int64_t terms, const Bound& last = 0) const;

 private:
  std::int64_t N_;
  std::vector<double> values_, squares_, inherited_;
};

/// Whether this thread may compute sums of products as products of matrices.
template <class T>
bool as_matrices() {
  if constexpr (std::is_same_v<T, float> || std::is_same_v<T, double>)
    return SummationScope::current() == nullptr;
  if constexpr (std::is_same_v<T, Bound>) {
    const ErrorModel& device = ErrorScope::current();
    return device.quick && !device.accumulator && !device.own;
  }
  return false;
}

/// A matmul whose sums are those of sum() at every level.
/// @param terms_of_rows  as of quick_products; where not as_matrices(), zeros are terms, too
template <class T>
void products(const OrderedMatmul<T>& of, std::span<const std::int64_t> terms_of_rows = {}) {
  if (as_matrices<T>()) {
    if constexpr (std::is_same_v<T, float> || std::is_same_v<T, double>) return multiply(of);
    if constexpr (std::is_same_v<T, Bound>) return quick_products(of, terms_of_rows);
  }
  const std::int64_t terms = of.last.x == nullptr ? of.K : of.K + 1;
  if constexpr (std::is_same_v<T, Bound>) {
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
