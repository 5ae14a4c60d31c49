#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "assay/golden/dtype.h"

/// The vector kernels of the differ, over blocks of a pair of dtypes whose values are float32 values. Every
/// result has the same bits on every instruction set: sums keep 16 lanes whatever the width of a vector, and
/// products are added without a rounding of their own.
namespace assay {

/// Elements a kernel takes at least, and those it takes at most; only multiples of the former. A block of
/// both sides stays in the second cache.
inline constexpr std::size_t fused_step = 256, fused_block = 16384;
/// Elements whose sums are float32; of both sides they stay in the first cache.
inline constexpr std::size_t fused_fold = 8 * fused_step;

/// Whether the kernels know the pair: float32, bfloat16 and float16 each with itself, float32 with bfloat16.
bool is_fused(DType actual, DType reference);

/// A block, and the constants of its sums and filters.
struct FusedBlock {
  const std::byte *actual, *reference;
  std::size_t count;
  float actual_shift = 0, reference_shift = 0;  ///< are taken from the elements before they are summed
  float excess_atol = 0, excess_rtol = 0;       ///< of FusedResult::excess
  /// For `fused_errors`: an element is surely over the allowed error above high_*, surely not below low_*;
  /// and what an error has to reach to be the largest.
  float low_atol = 0, low_rtol = 0, high_atol = 0, high_rtol = 0, worst_atol = 0, worst_rtol = 0;
  float abs_floor = 0, rel_floor = 0;
  double atol = 0, rtol = 0;
};

struct FusedSide {
  double sum, squares;  ///< of x - shift and (x - shift)^2, over the elements that are finite on both sides
  float min, max;       ///< of the elements that are not NaN
  std::int64_t zero, subnormal, nan, infinite;
};

/// The result of a block in float32 arithmetic. Counts and ulps are exact, sums are float64 sums of float32
/// sums (of 16 terms in a lane, then of 8 steps, then of two lanes), the largest errors are rounded.
struct FusedResult {
  FusedSide actual, reference;
  double abs, square, relative, cross;
  float max_abs, max_rel;
  std::int64_t special, relatives;  ///< elements not finite on both sides; those with a relative error
  std::int64_t above, below, different;
  std::uint64_t max_ulp;
  /// Largest |a - r| - excess_rtol |r| of each step; -inf if it is no larger than excess_atol in any.
  std::array<float, fused_block / fused_step> excess;
  bool regular;   ///< all are finite, and none of the reference is zero
  bool mismatch;  ///< specials that are not equal
  std::array<std::int64_t, 33> histogram;
};

/// The result in float64 arithmetic: the exact largest errors, and the number of elements over the allowed
/// error.
struct ExactErrors {
  double max_abs, max_rel, worst_ratio;
  std::int64_t over;
};
struct WideResult {
  ExactErrors errors;
  double abs, square, relative, cross;
  double actual_sum, actual_squares, reference_sum, reference_squares;
};

/// Of regular blocks; of others only `regular` means something.
FusedResult fused_regular(DType actual, DType reference, const FusedBlock&);
/// Of any block: elements that are not finite are left out of sums and errors. Half as fast. The sums are not
/// those of `fused_regular`, to the bit.
FusedResult fused_any(DType actual, DType reference, const FusedBlock&);
/// In float64 throughout, about three times slower; elements that are not finite are left out.
WideResult fused_wide(DType actual, DType reference, const FusedBlock&);
/// The exact number over the allowed error, and the exact largest errors as far as they reach the floors.
ExactErrors fused_errors(DType actual, DType reference, const FusedBlock&);
/// One side of a pair with equal bits.
FusedSide fused_side(DType, const FusedBlock&);

}  // namespace assay
