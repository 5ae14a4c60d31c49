#pragma once

#include <algorithm>
#include <cmath>

/// FP4 E2M1 (OCP Microscaling Formats v1.0 sec. 5.3.3): 0, 0.5, 1, 1.5, 2, 3, 4, 6 and their negatives, as
/// numbers: what is packed two to a byte is unpacked first.
namespace assay {

inline constexpr double largest_fp4 = 6;

/// The nearest one, of two the even; at most 6. NaN stays.
inline double round_to_fp4(double v) {
  const double size = std::abs(v);
  if (!(size < largest_fp4)) return std::isnan(v) ? v : std::copysign(largest_fp4, v);
  const double unit = size < 2 ? 0.5 : size < 4 ? 1 : 2;
  return std::copysign(std::min(std::nearbyint(size / unit) * unit, largest_fp4), v);
}

}  // namespace assay
