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
/// @param hidden  the part of an error that hides how far its value is from a float32: that much less is it
///                then. 0: none
/// scale share, rounded to float32 and cut to 12 of its bits; 0 below 2^-62: products may be subnormal. Of
/// squares scale |value| is squared. All values and errors are finite, and what is stored is 1 at most.
void cut_line(std::span<const Bound>, Share, double scale, double hidden, float* to);

/// Sums of as many terms with what they lose: fewest (bound.h) of n terms whose squares add up to `squares`,
/// and of products that are rounded themselves.
struct LineOfSums {
  const double *values, *squares, *inherited;
  std::size_t count;
  std::int64_t terms;
  double of_error;  ///< the part of each error that is told
};
void settle_line(const LineOfSums&, Bound* to);

}  // namespace assay
