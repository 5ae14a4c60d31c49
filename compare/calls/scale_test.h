#pragma once

#include <cstdint>
#include <optional>
#include <span>

namespace assay {

/// A recorded result beside what the golden operator makes of the same inputs.
struct ScaleTest {
  std::span<const double> actual, golden;
  std::span<const double> allowed;  ///< error of each element
  std::int64_t columns = 1;         ///< elements of a row, which may share a statistic: the last extent
  std::int64_t terms = 1;           ///< longest sum behind one element
  double unit_roundoff = 0;         ///< of the arithmetic
  double stored_roundoff = 0;       ///< of the result's dtype
  bool may_truncate = false;        ///< sums are of narrow products, in a unit that may cut them
  std::span<const std::int64_t> units = {};  ///< elements of one number share a rounding; empty: not known
};

/// By how much the result is larger than golden as a whole: k - 1 of k = <a, g> / <g, g>, the products of
/// elements weighed by the inverse squares of their allowed errors.
struct ScaleError {
  double excess = 0;
  double allowed = 0;  ///< more than it would be but for one tensor in 4e13
  bool within() const { return excess <= allowed && -excess <= allowed; }
};

/// What elementwise bounds cannot see: a factor of all elements that is smaller than one rounding.
/// Nothing where values are not finite or all golden ones are 0.
std::optional<ScaleError> scale_error(const ScaleTest&);

}  // namespace assay
