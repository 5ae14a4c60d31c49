#include "assay/compare/calls/scale_test.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "assay/compare/calls/scale_of_groups.h"
#include "assay/compare/measure/block_kernels.h"
#include "assay/golden/accumulator.h"

// k - 1 = sum e_i g_i / sum g_i^2 for errors e = a - g, in units of the error b_i that is allowed: the least
// squares with weights 1 / b_i^2, in which a few large elements do not drown all others.
//
// Errors of roundings are independent and as often up as down. Given their sizes, sum e_i g_i is a sum of
// terms of known size and random sign: beyond z sqrt(sum e_i^2 g_i^2) it is once in 4e13 tensors for z =
// `improbable` (Hoeffding's inequality on the signs; Efron 1969 for this self-normalised form). It holds
// however large the single roundings are and however many there were on the way, of partial sums on several
// ranks, of intermediate results: none of that needs to be known. A factor k of all elements makes the sum
// (k - 1) sum g_i^2, which outgrows the bound as the square root of the number of elements.
//
// An attribute that is off moves the result by d, its derivative: d stands in the place of g then.
//
// Elements that were stored as the same number have been rounded alike: they are one term, and so are those
// that share a rounded table entry (units), or a narrow result between steps that was made from equal inputs.
// Where nobody knows which elements share what, groups of them that share nothing tell (scale_of_groups.h).
namespace assay {
namespace {

// Constants (a scale, an epsilon, 1 / n) are rounded once each and shared by all elements: no operator has
// more than these.
constexpr double shared_constants = 4;

// The fewest products that a matrix unit adds at a time (Volta, tf32 on Ampere: golden/accumulator.cpp).
constexpr double fewest_fused = 4;

// Sums of the terms of each key, in a table of open addresses (Knuth, TAOCP 3, sec. 6.4): results of few bits
// have few keys. Keys that are NaN are one.
class SumsByKey {
 public:
  void add(double key, double term) {
    if (4 * count_ > 3 * units_.size()) grow();
    Unit& unit = at(std::isnan(key) ? std::numeric_limits<double>::lowest() : key + 0.0);  // -0 is 0
    unit.sum += term;
  }
  double root_of_squares() const {
    double squares = 0;
    for (const Unit& unit : units_) squares += unit.sum * unit.sum;
    return std::sqrt(squares);
  }

 private:
  struct Unit {
    double key = std::numeric_limits<double>::quiet_NaN();  // free
    double sum = 0;
  };
  Unit& at(double key) {
    const int shift = 64 - std::countr_zero(units_.size());
    std::size_t i = std::bit_cast<std::uint64_t>(key) * 0x9e3779b97f4a7c15 >> shift;
    while (units_[i].key != key && !std::isnan(units_[i].key)) i = (i + 1) % units_.size();
    if (std::isnan(units_[i].key)) {
      units_[i].key = key;
      ++count_;
    }
    return units_[i];
  }
  void grow() {
    const std::vector<Unit> before = std::exchange(units_, std::vector<Unit>(2 * units_.size()));
    count_ = 0;
    for (const Unit& unit : before) {
      if (!std::isnan(unit.key)) at(unit.key).sum = unit.sum;
    }
  }

  std::vector<Unit> units_ = std::vector<Unit>(1 << 10);
  std::size_t count_ = 0;
};

// sqrt(sum of the squares of the terms), after those of one key are added up.
template <class F>
double root_of_squares(const std::vector<double>& terms, F key_of) {
  SumsByKey sums;
  for (std::size_t i = 0; i < terms.size(); ++i) sums.add(key_of(i), terms[i]);
  return sums.root_of_squares();
}

// What elements have in common: all of them constants, those of a row its statistic, a sum of n terms, in
// error by at most n u and, but for one in 4e13, by z sqrt(n) u. Rows are independent of each other. A unit
// that truncates loses less than one unit in the last place, 2 u, at each step, always downwards.
//
// Whatever the c elements of a row share, it moves none of them beyond b_i: in sum e_i d_i / b_i^2 it has no
// more than sum |d_i| / b_i <= sqrt(c W), W = sum d_i^2 / b_i^2 over the row. Rows are independent, so their
// squares add up: sqrt(c sum W). Where a sum has so many terms that b is z times what its roundings deviate
// (golden/accumulator.cpp), z is in it already; not where rows share roundings.
double shared_error(const ScaleTest& t, const ScaleSums& sums) {
  const auto n = static_cast<double>(std::max<std::int64_t>(t.terms, 1));
  const double row_error = std::min(n, improbable * std::sqrt(n)) * t.unit_roundoff;
  double rows = 0;
  for (const double row : sums.rows) rows += (row / sums.square) * (row / sums.square);
  const bool probable = n > improbable * improbable && !t.rows_share;
  const double within_bounds =
      std::sqrt(static_cast<double>(t.columns) / sums.square) * (probable ? 1 : improbable);
  const double cut = t.may_truncate ? std::ceil(n / fewest_fused) * 2 * t.unit_roundoff : 0;
  // Rounding to nearest moves a sum of products with the rounded numbers themselves by the square of u.
  const double second_order = t.stored_roundoff * t.stored_roundoff;
  // Of an attribute a statistic has no share of its own.
  const bool is_factor = t.direction.empty() || t.terms <= 1;
  const double of_rows =
      is_factor ? std::min(row_error * std::min(1.0, improbable * std::sqrt(rows)), within_bounds)
                : within_bounds;
  return shared_constants * t.unit_roundoff + of_rows + cut + second_order;
}

}  // namespace

std::string describe(const ScaleError& e) {
  return e.attribute.empty()
             ? fmt::format(
                   "as a whole it is off by {:.2g} of itself where roundings make no more than {:.2g}",
                   e.excess, e.allowed)
             : fmt::format(
                   "as a whole it is as with {} times {:.4g}, where roundings make no more than {:.2g} "
                   "of a difference",
                   e.attribute, 1 + e.excess, e.allowed);
}

ScaleSums::ScaleSums(std::span<const double> actual, std::span<const double> golden,
                     std::span<const double> allowed, std::int64_t columns, std::int64_t begin,
                     std::span<const double> direction)
    : first_row(begin / std::max<std::int64_t>(columns, 1)) {
  const auto width = static_cast<std::size_t>(std::max<std::int64_t>(columns, 1));
  if (direction.empty()) direction = golden;
  std::size_t left = width - static_cast<std::size_t>(begin) % width;  // of the row
  constexpr std::size_t most = 256;                                    // at a time
  double squares[most], products[most];
  for (std::size_t i = 0; i < actual.size(); i += most) {
    const std::size_t count = std::min(most, actual.size() - i);
    const auto some = [&](std::span<const double> of) { return of.subspan(i, count); };
    is_finite &= weigh_errors(some(actual), some(golden), some(direction), some(allowed), squares, products);
    for (std::size_t k = 0; k < count;) {
      if (rows.empty() || left == width) rows.push_back(0);
      const std::size_t end = std::min(count, k + left);
      left = k + left == end ? width : left - (end - k);
      double row = rows.back();
      for (; k < end; ++k) {
        row += squares[k];
        square += squares[k];
        product += products[k];
      }
      rows.back() = row;
    }
  }
}

void ScaleSums::add(const ScaleSums& next) {
  is_finite = is_finite && next.is_finite;
  square += next.square;
  product += next.product;
  if (rows.empty()) first_row = next.first_row;
  rows.resize(std::max(rows.size(), static_cast<std::size_t>(next.first_row - first_row) + next.rows.size()));
  for (std::size_t i = 0; i < next.rows.size(); ++i)
    rows[static_cast<std::size_t>(next.first_row - first_row) + i] += next.rows[i];
}

std::optional<ScaleError> shared_scale_error(const ScaleTest& t, const ScaleSums& sums) {
  if (!sums.is_finite || !(sums.square > 0) || !std::isfinite(sums.square)) return std::nullopt;
  return ScaleError{sums.product / sums.square, shared_error(t, sums) + t.common};
}

std::optional<ScaleError> scale_error(const ScaleTest& t) {
  const ScaleSums sums(t.actual, t.golden, t.allowed, t.columns, 0, t.direction);
  std::optional<ScaleError> e = shared_scale_error(t, sums);
  if (!e || e->within()) return e;
  if (!t.apart.empty()) {
    const ScaleError of_groups = scale_of_groups(t);
    return ScaleError{of_groups.excess, e->allowed + of_groups.allowed};
  }
  // What elements may have in common is none of what varies between them.
  const double common = std::copysign(e->allowed, e->excess);
  std::vector<double> terms(t.actual.size()), squares(t.actual.size());
  weigh_errors(t.actual, t.golden, t.direction.empty() ? t.golden : t.direction, t.allowed, squares.data(),
               terms.data());
  for (std::size_t i = 0; i < terms.size(); ++i) terms[i] -= common * squares[i];
  double spread = root_of_squares(terms, [&](std::size_t i) { return std::abs(t.actual[i]); });
  for (const std::vector<std::int64_t>& units : t.units) {
    spread = std::max(spread,
                      root_of_squares(terms, [&](std::size_t i) { return static_cast<double>(units[i]); }));
  }
  for (const std::vector<double>& input : t.inputs)
    spread = std::max(spread, root_of_squares(terms, [&](std::size_t i) { return input[i]; }));
  e->allowed += improbable * spread / sums.square;
  return e;
}

}  // namespace assay
