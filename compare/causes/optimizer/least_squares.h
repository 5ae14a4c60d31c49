#pragma once

#include <array>
#include <cstddef>
#include <limits>
#include <optional>
#include <vector>

#include "assay/compare/causes/elements.h"

namespace assay {

/// A number that was fitted, and how far it may be off.
struct Estimate {
  double value = 0, sigma = 0;
  /// Equations that the fit had more than unknowns: how far its sigma can be believed.
  double left = std::numeric_limits<double>::infinity();

  /// offset + factor * this.
  Estimate scaled(double factor, double offset = 0) const;
};

/// The mean of several of one number, by their sigmas, as far as they can be believed; none: 0, with an
/// infinite sigma.
Estimate pooled(std::vector<Estimate>);

/// Programs' own numbers are short: the one of at most 4 digits that is within `slack`, float32's rounding
/// and six sigmas, or nothing.
std::optional<double> short_number(const Estimate&, double slack);

/// y = sum_k c_k x_k, each equation with a weight.
class LeastSquares {
 public:
  static constexpr std::size_t most = 4;
  using Row = std::array<double, most>;

  explicit LeastSquares(std::size_t unknowns) : n_(unknowns) {}
  void add(double y, const Row& x, double weight);
  /// Nothing where the columns do not tell the unknowns apart.
  std::optional<std::vector<Estimate>> solve() const;

 private:
  std::size_t n_;
  std::array<Row, most> products_{};
  Row with_y_{};
  double square_ = 0, count_ = 0;
};

/// One equation for an element: y, its columns, its weight; a weight of 0 leaves it out.
struct Equation {
  double y = 0;
  LeastSquares::Row x{};
  double weight = 0;
};

/// Fits the equations of all elements. The residual is fitted once more: what normal equations lose to
/// rounding comes back.
template <class F>
std::optional<std::vector<Estimate>> fit_elements(const Columns& columns, std::size_t unknowns, F equation) {
  std::optional<std::vector<Estimate>> fit;
  for (int pass = 0; pass < 2; ++pass) {
    LeastSquares squares(unknowns);
    for_each_element(columns, [&](std::int64_t, const double* element) {
      Equation e = equation(element);
      if (!(e.weight > 0) || !std::isfinite(e.weight)) return;
      for (std::size_t k = 0; fit && k < unknowns; ++k) e.y -= (*fit)[k].value * e.x[k];
      squares.add(e.y, e.x, e.weight);
    });
    const auto found = squares.solve();
    if (!found) return {};
    if (!fit) {
      fit = found;
      continue;
    }
    for (std::size_t k = 0; k < unknowns; ++k)
      (*fit)[k] = {(*fit)[k].value + (*found)[k].value, (*found)[k].sigma, (*found)[k].left};
  }
  return fit;
}

}  // namespace assay
