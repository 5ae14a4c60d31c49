#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "assay/golden/dtype.h"

/// The loops of BlockPass. Arrays are aligned to 64 bytes and end with whole groups of `block_lanes`
/// elements. Sums have one lane for each element of such a group, whatever the vectors are: the result has
/// the same bits on every instruction set.
namespace assay {

inline constexpr std::size_t block_lanes = 8;

struct ValueCounts {
  std::int64_t nan, infinite, zero;
  std::int64_t small;  ///< below `normal`, zeros too
  double min, max;     ///< of those that are not NaN; infinity and -infinity if there are none
};
ValueCounts count_values(std::span<const double> values, double normal);

/// How many elements of `size` bytes (1, 2, 4 or 8) have other bits. Of any alignment and number.
std::int64_t different_elements(std::span<const std::byte> actual, std::span<const std::byte> reference,
                                std::size_t size);

void subtract(std::span<const double> actual, std::span<const double> reference, double* difference);
/// atol + rtol |reference|
void allowed_errors(std::span<const double> reference, double atol, double rtol, double* limit);

/// A block of pairs, all finite.
struct ErrorArrays {
  const double *actual, *reference;
  const double *difference, *limit;  ///< actual - reference, and how large it may be
  std::size_t count;
};
struct ErrorTotals {
  double abs, square, relative, cross;  ///< cross: of difference times reference
  double actual, actual_square, reference, reference_square;
  double max_abs, max_rel, max_ratio;
  std::int64_t above, below, over, relatives;  ///< relatives: elements that have a relative error
};
ErrorTotals add_errors(const ErrorArrays&);

/// error / limit. Where the limit is 0 nothing is allowed, and so where it is NaN: 0 or infinity.
double error_ratio(double error, double limit);

/// sum of (x - mean)^2
double squares_about(double mean, std::span<const double> values);

/// Of elements that are allowed an error: share = d / b squared, and e / b times share, where e = actual -
/// golden, d is the direction and b what is allowed; 0 where that is not above 0 or not finite. Arrays of any
/// alignment and number.
/// @return  whether actual, golden and direction are finite
bool weigh_errors(std::span<const double> actual, std::span<const double> golden,
                  std::span<const double> direction, std::span<const double> allowed, double* squares,
                  double* products);

/// Whether one of the finite golden values is ... Arrays of any alignment and number.
struct BoundSides {
  bool above;      ///< larger than its bound
  bool nonzero;    ///< not 0
  bool unbounded;  ///< other than the actual value where the bound is infinite
};
BoundSides sides_of_bound(std::span<const double> actual, std::span<const double> golden,
                          std::span<const double> bound);

/// How many are at least `least` in size and from `low` to `high`. Of any alignment and number.
std::int64_t count_inside(std::span<const double> values, double least, double low, double high);

/// Distances in units in the last place of a floating dtype, the values rounded to it first; the largest is
/// returned. Finite values only.
std::uint64_t subtract_ordinals(DType unit, std::span<const double> actual, std::span<const double> reference,
                                std::uint64_t* ulps);
/// The same of integers of 32 bits at most, from their differences.
std::uint64_t whole_distances(std::span<const double> difference, std::uint64_t* ulps);
/// Each number becomes the number of its bits without leading zeros.
void to_bit_widths(std::span<std::uint64_t> numbers);

}  // namespace assay
