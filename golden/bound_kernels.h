#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "assay/golden/bound.h"

/// Loops over lines of Bounds that lie side by side, in the widest vectors that the machine has: with the
/// bits of the plain loops.
namespace assay {

struct LargestOfLine {
  double value = 0, error = 0;  ///< magnitudes
  bool is_finite = true;        ///< all values and errors are; what is not does not count
};
LargestOfLine largest_of(std::span<const Bound>);

/// A number that is not negative, of each Bound.
enum class Share : std::uint8_t {
  magnitude,
  square,
  error,            ///< less what is hidden in it
  value_and_error,  ///< |value| + error
};
/// scale share, rounded to float32 and cut to 12 of its bits; 0 below 2^-62, as products of less may be
/// subnormal. Of squares scale |value| is squared. All values and errors are finite, and no result is
/// above 1.
/// @param hidden  the part of an error that may hide how far its value is from a float32: where it does, the
///                error is that much less
void cut_line(std::span<const Bound>, Share, double scale, double hidden, float* to);

/// Sums of `terms` products, with the sums of their squares and what their factors' errors do to them.
struct LineOfSums {
  const double *values, *squares, *inherited;
  std::size_t count;
  std::int64_t terms;
  double of_error;  ///< the part of each error that is told
};
/// Each with what it inherits, the rounding of its products and least_loss().
void settle_line(const LineOfSums&, Bound* to);

}  // namespace assay
