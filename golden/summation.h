#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "assay/golden/dtype.h"
#include "assay/golden/sum_order.h"

namespace assay {

/// How sum() adds floats and doubles on this thread, where that is not from left to right: an order that a
/// correct kernel may choose, or a fault that it may have.
struct Summation {
  std::int64_t block = 0;  ///< so many terms at a time, then the blocks' sums; 0: all in one
  bool pairwise = false;
  std::optional<DType> accumulator = {};  ///< every partial sum is rounded to it
  bool skip_one = false;                  ///< the term of the median magnitude is left out, zeros not counted
  bool drop_tile = false;                 ///< the last 16 terms, at most half of them, are left out
  bool exact = false;                     ///< only the sum is rounded: its order does not matter
  /// Of sums of so many terms, in the accumulator's format or the terms' own.
  std::shared_ptr<const SumOrder> order = {};
  bool fma = false;  ///< with order, SumOrder::add_up's

  bool operator==(const Summation&) const = default;
};

/// Holds for the calling thread until the end of the scope.
class SummationScope {
 public:
  explicit SummationScope(const Summation&);
  ~SummationScope();
  SummationScope(const SummationScope&) = delete;
  SummationScope& operator=(const SummationScope&) = delete;
  /// nullptr: from left to right.
  static const Summation* current();

 private:
  Summation summation_;
  const Summation* outer_;
};

float add_up(const Summation&, std::span<const float> terms);
double add_up(const Summation&, std::span<const double> terms);

}  // namespace assay
