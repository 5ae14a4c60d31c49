#include <algorithm>
#include <cmath>
#include <map>

#include "assay/compare/calls/call.h"
#include "assay/compare/calls/weighted_columns.h"
#include "assay/compare/measure/measure.h"
#include "assay/golden/error.h"

namespace assay {
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
  std::vector<std::vector<double>> columns;
  for (auto& [micro_batch, sum] : by_micro_batch) {
    fit.micro_batches.push_back(micro_batch);
    columns.push_back(std::move(sum));
  }
  auto weights = weights_of(columns, y);
  if (!weights) return std::nullopt;
  fit.weights = std::move(*weights);
  const std::vector<double> values = weighted_sum(columns, fit.weights);
  double largest = 1;
  for (const double a : fit.weights) largest = std::max(largest, std::abs(a));
  std::vector<double> bound = allowed({parts, known_errors(variant)}, values);
  for (double& b : bound) b *= largest;
  const Metrics m = measure(result_, Tensor(result_.shape(), std::span<const double>(values)), {0, 0, bound});
  if (m.special_mismatch > 0 || !(m.worst_ratio <= 1)) return std::nullopt;
  fit.ratio = m.worst_ratio;
  fit.uncertainty = uncertainty_of_weights(device_.stored_roundoff());
  return fit;
} catch (const Error&) {  // not from these inputs
  return std::nullopt;
}

}  // namespace assay
