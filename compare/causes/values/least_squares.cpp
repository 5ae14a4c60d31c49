#include "assay/compare/causes/values/least_squares.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <string>

#include "assay/golden/evidence.h"

namespace assay {

Estimate Estimate::scaled(double factor, double offset) const {
  return {offset + factor * value, std::abs(factor) * sigma, left, std::abs(factor) * reach};
}

Estimate pooled(std::vector<Estimate> all) {
  // Of fewer equations left the mean of 1 / variance is infinite (that of 1 / chi^2 of k is 1 / (k - 2)): a
  // fit that is exact by accident would outweigh all others.
  constexpr double enough = 3;
  const auto says_sigma = [](const Estimate& e) { return e.left >= enough; };
  if (std::ranges::any_of(all, says_sigma)) std::erase_if(all, std::not_fn(says_sigma));
  double weights = 0, sum = 0, left = 0, reach = 0;
  for (const Estimate& e : all) {
    // No sigma is smaller than the rounding of the fit itself.
    const double sigma = std::max(e.sigma, std::numeric_limits<double>::epsilon() * std::abs(e.value));
    if (!(sigma > 0) || !std::isfinite(sigma) || !std::isfinite(e.value)) continue;
    weights += 1 / (sigma * sigma);
    sum += e.value / (sigma * sigma);
    reach += e.reach / (sigma * sigma);
    left = std::max(left, e.left);
  }
  if (weights == 0) return {0, std::numeric_limits<double>::infinity()};
  return {sum / weights, 1 / std::sqrt(weights), left, reach / weights};
}

std::optional<double> short_number(const Estimate& e, double slack) {
  // Four digits are met that well by accident once in four hundred times; what is found is verified.
  constexpr double near = 0x1p-22;
  slack = std::max(slack, near * std::abs(e.value));
  if (std::abs(e.value) <= slack + improbable * e.sigma) return 0;
  for (const int digits : {1, 2, 3, 4}) {
    const double candidate = std::stod(fmt::format("{:.{}g}", e.value, digits));
    if (std::abs(candidate - e.value) <= slack + improbable * e.sigma) return candidate;
  }
  return {};
}

void LeastSquares::add(double y, const Coefficients& x, double weight) {
  const double w = weight * weight;
  for (std::size_t i = 0; i < n_; ++i) {
    for (std::size_t k = 0; k <= i; ++k) products_[i][k] += w * x[i] * x[k];
    with_y_[i] += w * x[i] * y;
  }
  square_ += w * y * y;
  count_ += 1;
}

std::optional<std::vector<Estimate>> LeastSquares::solve() const {
  // Cholesky of the matrix with a diagonal of ones. A pivot below this: the column is in the span of those
  // before it, as far as float32 numbers can tell (2^-24 each, squared here, of a sum).
  constexpr double dependent = 0x1p-40;
  std::array<double, most> scale{};
  for (std::size_t i = 0; i < n_; ++i) {
    if (!(products_[i][i] > 0) || !std::isfinite(products_[i][i])) return {};
    scale[i] = std::sqrt(products_[i][i]);
  }
  std::array<Coefficients, most> l{};
  for (std::size_t i = 0; i < n_; ++i) {
    for (std::size_t k = 0; k <= i; ++k) {
      double rest = products_[i][k] / scale[i] / scale[k];
      for (std::size_t j = 0; j < k; ++j) rest -= l[i][j] * l[k][j];
      if (i == k && !(rest > dependent)) return {};
      l[i][k] = i == k ? std::sqrt(rest) : rest / l[k][k];
    }
  }
  const auto solved = [&](Coefficients b) {
    for (std::size_t i = 0; i < n_; ++i) {
      for (std::size_t k = 0; k < i; ++k) b[i] -= l[i][k] * b[k];
      b[i] /= l[i][i];
    }
    for (std::size_t i = n_; i-- > 0;) {
      for (std::size_t k = i + 1; k < n_; ++k) b[i] -= l[k][i] * b[k];
      b[i] /= l[i][i];
    }
    return b;
  };
  Coefficients right{};
  for (std::size_t i = 0; i < n_; ++i) right[i] = with_y_[i] / scale[i];
  const Coefficients c = solved(right);
  double rest = square_;
  for (std::size_t i = 0; i < n_; ++i) rest -= c[i] * right[i];
  const double left = count_ - static_cast<double>(n_);
  const double variance = std::max(0.0, rest) / std::max(1.0, left);
  std::vector<Estimate> result;
  for (std::size_t i = 0; i < n_; ++i) {
    Coefficients unit{};
    unit[i] = 1;
    // c_i is off by the errors times a vector of this length, of which each is 1 at most: Cauchy and Schwarz.
    const double length = std::sqrt(solved(unit)[i]) / scale[i];
    result.push_back({c[i] / scale[i], std::sqrt(variance) * length, left, std::sqrt(count_) * length});
  }
  return result;
}

}  // namespace assay
