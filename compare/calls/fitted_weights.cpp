#include <cmath>
#include <map>

#include "assay/compare/calls/call.h"
#include "assay/compare/measure/measure.h"
#include "assay/golden/error.h"

namespace assay {
namespace {

using Columns = std::vector<std::vector<double>>;

double dot(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

// y = sum a_k columns_k in the least squares sense: Cholesky's factor of the normal equations (Higham 2002,
// sec. 20.4). Nothing where a column is within float64's rounding of what the others span.
std::optional<std::vector<double>> solve(const Columns& columns, const std::vector<double>& y) {
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

std::vector<double> weighted(const Columns& columns, const std::vector<double>& a) {
  std::vector<double> sum(columns.front().size(), 0);
  for (std::size_t k = 0; k < columns.size(); ++k) {
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += a[k] * columns[k][i];
  }
  return sum;
}

}  // namespace

std::optional<Call::Weights> Call::fitted_weights(const CallVariant& variant) const try {
  constexpr std::size_t most = 64, elements_each = 4;
  if (summands_.size() < 2 || !is_float(result_.dtype()) || !variant.permutation.empty()) return std::nullopt;
  const std::vector<Tensor> parts = golden(variant, {});
  std::map<std::int64_t, std::vector<double>> by_micro_batch;
  for (std::size_t c = 0; c < summands_.size(); ++c) {
    std::vector<double>& sum = by_micro_batch[summands_[c].micro_batch];
    sum.resize(static_cast<std::size_t>(parts[c].size()), 0);
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += parts[c].value(static_cast<std::int64_t>(i));
  }
  const std::vector<double> y = result_.values();
  if (by_micro_batch.size() < 2 || by_micro_batch.size() > most ||
      y.size() < elements_each * by_micro_batch.size())
    return std::nullopt;
  Weights fit;
  Columns columns;
  for (auto& [micro_batch, sum] : by_micro_batch) {
    fit.micro_batches.push_back(micro_batch);
    columns.push_back(std::move(sum));
  }
  auto weights = solve(columns, y);
  if (!weights) return std::nullopt;
  fit.weights = std::move(*weights);
  const std::vector<double> values = weighted(columns, fit.weights);
  double largest = 1;
  for (const double a : fit.weights) largest = std::max(largest, std::abs(a));
  std::vector<double> bound = allowed(variant, parts, values);
  for (double& b : bound) b *= largest;
  const Metrics m = measure(result_, Tensor(result_.shape(), std::span<const double>(values)), {0, 0, bound});
  if (m.special_mismatch > 0 || !(m.worst_ratio <= 1)) return std::nullopt;
  fit.ratio = m.worst_ratio;
  // A weight is a mean over the elements, whose roundings are some units each.
  constexpr double units = 16;
  fit.uncertainty = units * device_.stored_roundoff();
  return fit;
} catch (const Error&) {  // not from these inputs
  return std::nullopt;
}

}  // namespace assay
