#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace assay {

/// A recorded result, and the golden result of the same inputs.
struct ScaleTest {
  std::span<const double> actual, golden;
  /// What one more of an attribute adds to golden, in units of the attribute; empty: golden itself, whose
  /// scale is looked for.
  std::span<const double> direction = {};
  std::span<const double> allowed;  ///< allowed error of each element
  std::int64_t columns = 1;         ///< elements of a row (the last extent), which may share a statistic
  std::int64_t terms = 1;           ///< the longest sum behind one element
  double unit_roundoff = 0;         ///< of the arithmetic
  double stored_roundoff = 0;       ///< of the result's dtype
  bool may_truncate = false;        ///< the sums add narrow products in a unit that may truncate them
  bool rows_share = false;          ///< what is rounded once may move elements of all rows (gradients)
  double common = 0;                ///< what else all elements may be off by together
  /// Each numbers the elements: equal ones share a rounding.
  std::vector<std::vector<std::int64_t>> units = {};
  /// Inputs of the result's shape, where results between steps are kept in a narrow dtype: what is computed
  /// from equal values was rounded alike.
  std::vector<std::vector<double>> inputs = {};
  /// Numbers the elements: those of different numbers share no rounding at all, those of one number in ways
  /// that nobody knows. Empty: elements share as above.
  std::vector<std::int64_t> apart = {};
};

/// The relative excess of the result over golden as a whole: k - 1 for k = <a, g> / <g, g>. The products of
/// elements are weighted by the inverse squares of their allowed errors. Or of an attribute, <a - g, d> / <d,
/// d> for the direction d in which it moves the result.
struct ScaleError {
  double excess = 0;
  double allowed = 0;               ///< rounding exceeds it in one tensor of 4e13; less, where that is enough
  std::string_view attribute = {};  ///< that is off; empty: the result itself
  bool within() const { return excess <= allowed && -excess <= allowed; }
};

/// What the elements of a part of the tensor add to it, from some element on.
struct ScaleSums {
  ScaleSums() = default;
  ScaleSums(std::span<const double> actual, std::span<const double> golden, std::span<const double> allowed,
            std::int64_t columns, std::int64_t begin, std::span<const double> direction = {});
  /// Adds the part that follows.
  void add(const ScaleSums& next);

  double square = 0, product = 0;  ///< sums of g^2 / b^2 and e g / b^2
  std::vector<double> rows;        ///< of the first, by rows; the last one may go on
  std::int64_t first_row = 0;
  bool is_finite = true;
};
/// The excess, and what is allowed of it because elements share roundings: a part of the whole that decides
/// most tensors. Only the numbers of the test are read. Nothing as scale_error.
std::optional<ScaleError> shared_scale_error(const ScaleTest&, const ScaleSums&);

/// "as a whole it is off by 1.5e-07 of itself where roundings make no more than 2e-08"
std::string describe(const ScaleError&);

/// Finds a common factor of all elements that is smaller than one rounding, which elementwise bounds cannot
/// see. Returns nothing if a value is not finite, or if all golden values are 0.
std::optional<ScaleError> scale_error(const ScaleTest&);

}  // namespace assay
