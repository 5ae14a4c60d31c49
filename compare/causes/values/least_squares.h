#pragma once

#include <array>
#include <cstddef>
#include <limits>
#include <optional>
#include <vector>

#include "assay/compare/causes/values/elements.h"

namespace assay {

/// A fitted number and its standard deviation.
struct Estimate {
  double value = 0, sigma = 0;
  /// The number of equations beyond the unknowns: it limits the trust in sigma.
  double left = std::numeric_limits<double>::infinity();
  /// How far it is off at most if no equation is off by more than 1 / its weight.
  double reach = 0;

  /// offset + factor * this.
  Estimate scaled(double factor, double offset = 0) const;
};

/// Returns the mean of several estimates of one number, weighted by their sigmas as far as these can be
/// trusted. Without estimates: 0 with an infinite sigma.
Estimate pooled(std::vector<Estimate>);

/// Returns the short number (at most 4 digits) within `slack`, the rounding of float32 and `improbable`
/// sigmas, if there is one. The settings of a program are short numbers.
std::optional<double> short_number(const Estimate&, double slack);

/// y = sum_k c_k x_k, each equation with a weight.
class LeastSquares {
 public:
  static constexpr std::size_t most = 4;
  using Coefficients = std::array<double, most>;

  explicit LeastSquares(std::size_t unknowns) : n_(unknowns) {}
  void add(double y, const Coefficients& x, double weight);
  /// Returns nothing if the columns do not separate the unknowns.
  std::optional<std::vector<Estimate>> solve() const;

 private:
  std::size_t n_;
  std::array<Coefficients, most> products_{};
  Coefficients with_y_{};
  double square_ = 0, count_ = 0;
};

/// One equation for an element: y, its columns, its weight; a weight of 0 leaves it out.
struct Equation {
  double y = 0;
  LeastSquares::Coefficients x{};
  double weight = 0;
};

/// Fits the equations of all elements. A second fit of the residual recovers the accuracy that normal
/// equations lose to rounding.
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
