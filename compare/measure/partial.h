#pragma once

#include <cstdint>

#include "assay/compare/result/metrics.h"
#include "assay/golden/tensor_source.h"

/// Metrics of a part of the pair, and how parts are put together in order.
namespace assay {

/// A sum with the error of a single rounding: TwoSum of Knuth keeps the loss of each addition.
struct CompensatedSum {
  double high = 0, low = 0;
  void add(double x) {
    const double total = high + x;
    const double x_part = total - high;
    low += (high - (total - x_part)) + (x - x_part);
    high = total;
  }
  double value() const { return low - low == 0 ? high + low : high; }  // `low` of an infinite sum is NaN
};

/// Mean and spread of one side, over `count` elements that the owner knows.
struct Moments {
  CompensatedSum sum;
  double squares = 0;  ///< sum of (x - mean)^2
  /// Chan, Golub and LeVeque 1983, "Algorithms for computing the sample variance", eq. 2.1.
  void merge(double count, const Moments& from, double from_count);
};

/// Metrics before means and roots are computed from the sums over the finite pairs.
struct Partial {
  Metrics metrics;
  CompensatedSum abs, square, relative, actual_square, reference_square;
  CompensatedSum cross;  ///< of (actual - reference) reference
  Moments actual, reference;
  std::int64_t finite = 0, relatives = 0;  ///< elements in the sums; those with a relative error
};

/// The larger value and where it is; of equal ones the first. A position of -1 means there is none.
template <class V>
void keep_larger(V& value, std::int64_t& at, V other, std::int64_t other_at) {
  if (other_at >= 0 && (at < 0 || other > value || (other == value && other_at < at))) {
    value = other;
    at = other_at;
  }
}

void merge_into(Partial& into, const Partial& from);
/// Positions in a part that begins there become those in the whole.
void move_to(Partial&, std::int64_t begin);
/// Means, roots and ratios from the sums.
void finish(Partial&);

/// Whether the sums behind the cosine, of differences, have lost it: one_minus_cosine gives it from products.
bool actual_is_far_below(const Partial&);
double one_minus_cosine(const TensorSource& actual, const TensorSource& reference);

/// Whether squares of float64 values have overflowed, or have become too small to carry all their digits.
bool squares_left_the_range(const Partial&);
/// Roots and ratios again, from squares of values that are scaled by a power of two into the range.
void finish_scaled(Partial&, const TensorSource& actual, const TensorSource& reference);

}  // namespace assay
