#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "assay/golden/dtype.h"

namespace assay {

/// The error that is allowed at element i: atol + rtol |reference_i| + bound_i.
struct Allowed {
  double atol = 0;
  double rtol = 0;
  std::span<const double> bound = {};  ///< per element, or empty
};

/// What one side holds.
struct Side {
  std::int64_t nan = 0, infinite = 0, zero = 0, subnormal = 0;
  double min = 0, max = 0;   ///< of the elements that are not NaN; 0 if there are none
  double mean = 0, std = 0;  ///< of the elements that are finite on both sides; std of n, not of n - 1
};

/// Everything one pass over a pair says. Positions are flat C-order indices, -1 where there is none.
/// NaN against NaN and infinities of one sign are equal; other pairs with NaN or an infinity are counted in
/// `special_mismatch` and left out of the sums.
struct Metrics {
  std::int64_t elements = 0;
  double max_abs = 0;
  std::int64_t max_abs_at = -1;
  double max_rel = 0;  ///< |actual - reference| / |reference|, over reference != 0
  std::int64_t max_rel_at = -1;
  double mean_abs = 0, rmse = 0;
  double mean_rel = 0;     ///< over reference != 0
  double relative_l2 = 0;  ///< ||actual - reference|| / ||reference||; inf where only the reference is zero
  double one_minus_cosine = 0;  ///< (||d||^2 - (||a|| - ||r||)^2) / (2 ||a|| ||r||); 1 where one side is zero
  /// Units in the last place of `ulp_dtype`, the coarser dtype of the two; integers: their difference.
  DType ulp_dtype = DType::float32;
  std::uint64_t max_ulp = 0;  ///< no more than 2^64-1
  std::int64_t max_ulp_at = -1;
  /// [0]: equal; [k]: 2^(k-1) <= ulp < 2^k; as long as it takes. Without the elements of special_mismatch.
  std::vector<std::int64_t> ulp_histogram;
  Side actual, reference;
  std::int64_t different_bits = 0;  ///< of equal dtypes, by bits; else by value
  std::int64_t different_bits_at = -1;
  std::int64_t special_mismatch = 0;
  std::int64_t special_mismatch_at = -1;
  /// The reference is beyond the actual dtype, which holds the infinity it rounds to.
  std::int64_t overflowed = 0;
  std::int64_t above = 0, below = 0;  ///< actual > reference, actual < reference

  std::int64_t over = 0;   ///< elements whose error is not within the allowed one
  double worst_ratio = 0;  ///< largest error / allowed; inf where nothing is allowed and something differs
  std::int64_t worst_at = -1;
};

/// The element that stands for the pair in a report: the first at which NaN or Inf differ, else the one
/// with the largest error / allowed, else (of values that are equal) the first with other bits. -1 if there
/// is none.
std::int64_t worst_element(const Metrics&);

}  // namespace assay
