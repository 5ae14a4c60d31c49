#pragma once

#include <cmath>
#include <vector>

#include "assay/golden/dtype.h"

namespace assay {

/// Attributes that leave a result further away than this, by relative_l2, are not looked at closer.
inline constexpr double may_fit_within = 0.1;

/// ||a - g|| / ||g|| of what is finite on both sides. Where squares leave the range of a float64 it is 0,
/// too: it only spares work.
inline double relative_l2(const std::vector<double>& a, const std::vector<double>& g) {
  double square = 0, norm = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (!std::isfinite(a[i]) || !std::isfinite(g[i])) continue;
    square += (a[i] - g[i]) * (a[i] - g[i]);
    norm += g[i] * g[i];
  }
  const bool is_known = std::isnormal(square) && std::isnormal(norm);
  return is_known ? std::sqrt(square / norm) : norm == 0 && square > 0 ? infinity : 0;
}

}  // namespace assay
