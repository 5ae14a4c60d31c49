// Something is added to the reference that no other tensor is needed for: a logarithm, or another column.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "assay/compare/causes/values/failing_pair.h"
#include "assay/golden/evidence.h"

namespace assay {
namespace {

constexpr double bits_of_a_name = 8;  // of some sizes
constexpr double quarter = 16;        // of squares

Model plus(double constant) {
  return [constant](const ElementWindow& w) {
    for (std::size_t i = 0; i < w.expected.size(); ++i) w.expected[i] = w.reference[i] + constant;
  };
}

bool explains(const Fit& fit) {
  return fit.residual <= 1 && fit.after * quarter <= fit.before;
}

}  // namespace

// A softmax over copies of its classes is too large by the logarithm of their number. Other constants are
// not said: a shifted ramp looks like one.
void explain_added_constant(const FailingPair& pair, std::vector<Diagnosis>& found) {
  if (!pair.finite || pair.over < pair.actual.size()) return;
  // Equal elements are one.
  const std::set<double> distinct(pair.wrong.reference.begin(), pair.wrong.reference.end());
  const double share = static_cast<double>(distinct.size()) / static_cast<double>(pair.wrong.at.size());
  if (distinct.size() < 2 || !proves(evidence(pair) * share, bits_of_a_name)) return;
  for (const double sign : {1., -1.}) {
    CauseParameters p = {.term = "a constant"};
    double residual = 0;
    for (const KnownSize& s : pair.context.sizes) {
      const double constant = sign * std::log(static_cast<double>(s.size));
      const Fit fit = s.size > 1 ? verify(pair, plus(constant)) : Fit();
      if (!explains(fit)) continue;
      p.factor = constant;
      p.factor_names.push_back(fmt::format("log {}", s.name));
      residual = fit.residual;
    }
    if (p.factor) found.push_back({Cause::added, std::move(p), residual});
  }
}

// All that is wrong stands in one column, which is its own plus or minus another.
void explain_added_column(const FailingPair& pair, std::vector<Diagnosis>& found) {
  constexpr std::int64_t most_elements = 1 << 22, most_columns = 256;
  const Shape& shape = pair.actual.shape();
  const std::int64_t columns = shape.empty() ? 0 : shape.back(), size = pair.actual.size();
  if (!pair.finite || shape.size() < 2 || columns < 2 || columns > most_columns || size > most_elements ||
      size / columns < 2)
    return;
  const std::int64_t wrong = pair.wrong.at.front() % columns;
  for (const std::int64_t at : pair.wrong.at) {
    if (at % columns != wrong) return;
  }
  if (!proves(evidence(pair), std::log2(2. * static_cast<double>(columns)))) return;
  const std::vector<double> reference = pair.reference.whole().values();
  for (std::int64_t other = 0; other < columns; ++other) {
    for (const double factor : {1., -1.}) {
      if (other == wrong) continue;
      const Fit fit = verify(pair, [&](const ElementWindow& w) {
        for (std::size_t i = 0; i < w.expected.size(); ++i) {
          const std::int64_t at = w.begin + static_cast<std::int64_t>(i);
          const bool is_wrong = at % columns == wrong;
          w.expected[i] = w.reference[i] +
                          (is_wrong ? factor * reference[static_cast<std::size_t>(at - wrong + other)] : 0);
        }
      });
      if (!explains(fit)) continue;
      found.push_back({Cause::added,
                       {.factor = factor,
                        .along = "column",
                        .positions = {wrong},
                        .term = fmt::format("column {}", other)},
                       fit.residual});
      return;
    }
  }
}

}  // namespace assay
