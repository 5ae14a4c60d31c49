#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "assay/golden/dtype.h"

namespace assay {

/// The allowed error of element i: atol + rtol |reference_i| + bound_i.
struct Allowed {
  double atol = 0;
  double rtol = 0;
  std::span<const double> bound = {};  ///< one per element, or empty
};

/// Statistics of one side.
struct Side {
  std::int64_t nan = 0, infinite = 0, zero = 0, subnormal = 0;
  double min = 0, max = 0;   ///< over the elements that are not NaN; 0 if there are none
  double mean = 0, std = 0;  ///< over the elements that are finite on both sides; std divides by n
};

/// The result of one pass over a pair. Positions are flat indices in C order; -1 means none. NaN equals NaN,
/// and infinities of one sign are equal. Other pairs with a NaN or an infinity are counted in
/// `special_mismatch` and left out of the sums.
struct Metrics {
  std::int64_t elements = 0;
  double max_abs = 0;
  std::int64_t max_abs_at = -1;
  double max_rel = 0;  ///< |actual - reference| / |reference|, over reference != 0
  std::int64_t max_rel_at = -1;
  double mean_abs = 0, rmse = 0;
  double mean_rel = 0;          ///< over reference != 0
  double relative_l2 = 0;       ///< ||actual - reference|| / ||reference||; inf if only the reference is zero
  double one_minus_cosine = 0;  ///< (||d||^2 - (||a|| - ||r||)^2) / (2 ||a|| ||r||); 1 if one side is zero
  /// Distances in units in the last place of `ulp_dtype`, the coarser dtype of the pair. For integers, their
  /// difference.
  DType ulp_dtype = DType::float32;
  std::uint64_t max_ulp = 0;  ///< at most 2^64-1
  std::int64_t max_ulp_at = -1;
  /// [0] counts equal elements, [k] those with 2^(k-1) <= ulp < 2^k, up to the last k that occurs. Elements
  /// of special_mismatch are left out.
  std::vector<std::int64_t> ulp_histogram;
  Side actual, reference;
  std::int64_t different_bits = 0;  ///< compared by bits if the dtypes are equal, else by value
  std::int64_t different_bits_at = -1;
  std::int64_t special_mismatch = 0;
  std::int64_t special_mismatch_at = -1;
  /// Elements whose reference is beyond the range of the actual dtype, and that hold the infinity it rounds
  /// to.
  std::int64_t overflowed = 0;
  std::int64_t above = 0, below = 0;  ///< actual > reference, actual < reference

  std::int64_t over = 0;   ///< elements with an error over the allowed one
  double worst_ratio = 0;  ///< largest error / allowed; inf if an element differs where no error is allowed
  std::int64_t worst_at = -1;
};

/// Returns the element that represents the pair in a report: the first with different NaN or Inf, else the
/// one with the largest error / allowed, else the first with different bits. -1 if there is none.
std::int64_t worst_element(const Metrics&);

}  // namespace assay
