#include "assay/compare/flow/expected_value.h"

#include <algorithm>
#include <cmath>

namespace assay {

double allowed(const DerivedValue& e, const SideTensor& t, std::size_t i) {
  // Each share of the target was stored, and their sum was rounded here.
  const double stored =
      t.magnitude.empty() ? std::abs(e.values[i]) + e.of(i) : (t.addends + 1) * t.magnitude[i] + e.of(i);
  return e.of(i) + unit_roundoff(t.dtype) * stored + min_subnormal(t.dtype) / 2;
}

double ratio(const DerivedValue& e, const SideTensor& t, std::int64_t& outside) {
  outside = 0;
  if (e.values.size() != t.values.size()) return infinity;
  const bool is_exact = e.is_exact && t.magnitude.empty();
  double worst = 0;
  for (std::size_t i = 0; i < t.values.size(); ++i) {
    const double a = t.values[i], v = e.values[i];
    if (a == v || (std::isnan(a) && std::isnan(v))) continue;
    double r = infinity;
    if (is_exact) {
      if (a == round_to(t.dtype, v)) continue;
    } else {
      r = std::abs(a - v) / allowed(e, t, i);
      if (std::isnan(r)) r = infinity;
    }
    outside += r > 1 ? 1 : 0;
    worst = std::max(worst, r);
  }
  return worst;
}

// A term of several ranks may itself be a sum of rounded parts with unrecorded sizes, each of which was
// stored to be sent. Unless nearly everything cancels, a row of parts is no more than `ranks` times as large
// as its sum, and none of its elements is larger than the largest term.
double ratio_of_ranks(DerivedValue e, const SideTensor& t, int ranks, std::int64_t& outside) {
  if (e.is_exact || e.terms < 2) return ratio(e, t, outside);
  if (e.error.empty()) e.error.resize(e.values.size(), 0);
  const double u = std::max(e.roundoff, unit_roundoff(t.dtype));
  for (std::size_t i = 0; i < e.error.size(); ++i) e.error[i] += e.terms * u * e.size(i);
  const double worst = ratio(e, t, outside);
  if (worst <= 1 || t.shape.size() < 2 || e.values.size() != t.values.size()) return worst;
  const auto width = static_cast<std::size_t>(t.shape.back());
  const double rounding = ranks * 2 * e.terms * u;
  double of_rows = 0;
  for (std::size_t begin = 0; begin < e.values.size(); begin += width) {
    double square = 0, errors = 0, largest = 0, furthest = 0;
    for (std::size_t i = begin; i < begin + width; ++i) {
      const double error = std::abs(t.values[i] - e.values[i]);
      if (t.values[i] == e.values[i]) continue;
      if (!std::isfinite(error)) return worst;
      furthest = std::max(furthest, error);
      errors += error * error;
    }
    for (std::size_t i = begin; i < begin + width; ++i) {
      if (!std::isfinite(e.size(i))) continue;
      largest = std::max(largest, e.size(i));
      square += e.size(i) * e.size(i);
    }
    if (furthest == 0) continue;
    of_rows = std::max(
        {of_rows, furthest / (rounding * largest), std::sqrt(errors) / (rounding * std::sqrt(square))});
  }
  return std::isnan(of_rows) ? worst : std::min(worst, of_rows);
}

std::optional<ScaleError> scale_of_sum(const DerivedValue& e, const SideTensor& t) {
  if (!e.is_added_up || e.is_exact || !t.magnitude.empty() || !is_float(t.dtype) ||
      e.values.size() != t.values.size() || t.values.empty())
    return {};
  std::vector<double> may_be_off(t.values.size());
  for (std::size_t i = 0; i < may_be_off.size(); ++i) may_be_off[i] = allowed(e, t, i);
  return scale_error({.actual = t.values,
                      .golden = e.values,
                      .allowed = may_be_off,
                      .columns = t.shape.empty() ? 1 : t.shape.back(),
                      .terms = 1,  // nothing is shared by the elements of a row
                      .unit_roundoff = unit_roundoff(DType::float32),
                      .stored_roundoff = unit_roundoff(t.dtype)});
}

std::optional<RightValue> right_value(const DerivedValue& e, const SideTensor& t) {
  if (e.values.size() != t.values.size() || !is_float(t.dtype)) return {};
  RightValue right{Tensor::from_values(DType::float64, t.shape, e.values), {}, {}};
  for (std::size_t i = 0; i < t.values.size(); ++i) right.allowed.push_back(allowed(e, t, i));
  return right;
}

}  // namespace assay
