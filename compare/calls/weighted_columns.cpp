#include "assay/compare/calls/weighted_columns.h"

#include <algorithm>
#include <cmath>

namespace assay {
namespace {

double dot(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

}  // namespace

// Cholesky's factor of the normal equations (Higham 2002, sec. 20.4).
std::optional<std::vector<double>> weights_of(const std::vector<std::vector<double>>& columns,
                                              const std::vector<double>& y) {
  constexpr double least_pivot = 0x1p-40;  // of its diagonal: normal equations square the condition
  const std::size_t n = columns.size();
  std::vector<std::vector<double>> l(n, std::vector<double>(n, 0));
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t j = 0; j <= i; ++j) {
      const double diagonal = dot(columns[i], columns[j]);
      double rest = diagonal;
      for (std::size_t k = 0; k < j; ++k) rest -= l[i][k] * l[j][k];
      if (i != j)
        l[i][j] = rest / l[j][j];
      else if (rest > least_pivot * diagonal && std::isfinite(rest))
        l[i][i] = std::sqrt(rest);
      else
        return std::nullopt;
    }
  }
  std::vector<double> a(n);
  for (std::size_t i = 0; i < n; ++i) {
    a[i] = dot(columns[i], y);
    for (std::size_t k = 0; k < i; ++k) a[i] -= l[i][k] * a[k];
    a[i] /= l[i][i];
  }
  for (std::size_t i = n; i-- > 0;) {
    for (std::size_t k = i + 1; k < n; ++k) a[i] -= l[k][i] * a[k];
    a[i] /= l[i][i];
  }
  return a;
}

std::vector<double> weighted_sum(const std::vector<std::vector<double>>& columns,
                                 const std::vector<double>& a) {
  std::vector<double> sum(columns.front().size(), 0);
  for (std::size_t k = 0; k < columns.size(); ++k) {
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += a[k] * columns[k][i];
  }
  return sum;
}

double uncertainty_of_weights(double stored_roundoff) {
  constexpr double units = 16;
  return units * stored_roundoff;
}

std::optional<std::vector<double>> counts_of(const std::vector<double>& weights, double uncertainty) {
  const auto [least, most] = std::ranges::minmax(weights);
  if (most - least <= uncertainty * std::abs(most)) return {};
  std::vector<double> counts;
  for (const double a : weights) {
    const double whole = std::round(a);
    counts.push_back(std::abs(a - whole) <= uncertainty ? std::abs(whole) : a);
  }
  return counts;
}

}  // namespace assay
