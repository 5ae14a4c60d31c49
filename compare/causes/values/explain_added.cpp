// Something is added to the reference that the pair itself has: a number, or another column.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "assay/compare/causes/values/factor_names.h"
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

double mean_error(const Sample& wrong) {
  double sum = 0;
  for (std::size_t i = 0; i < wrong.at.size(); ++i) sum += wrong.actual[i] - wrong.reference[i];
  return sum / static_cast<double>(wrong.at.size());
}

bool explains(const Fit& fit) {
  return fit.residual <= 1 && fit.after * quarter <= fit.before;
}

// "log tp": a softmax over copies of its classes is too large by so much.
std::vector<std::string> logarithms(double constant, const std::vector<KnownSize>& sizes,
                                    const std::function<bool(double)>& fits) {
  std::vector<std::string> names;
  for (const KnownSize& s : sizes) {
    const double log = std::copysign(std::log(static_cast<double>(s.size)), constant);
    if (s.size > 1 && fits(log)) names.push_back(fmt::format("{}log {}", constant < 0 ? "-" : "", s.name));
  }
  return names;
}

}  // namespace

void explain_added_constant(const FailingPair& pair, std::vector<Diagnosis>& found) {
  // Of one element any number is the difference.
  if (pair.over < 2 || pair.over < pair.actual.size() || !looks_offset(pair)) return;
  const double mean = mean_error(pair.wrong);
  const auto fits = [&](double constant) { return explains(verify(pair, plus(constant))); };
  if (!fits(mean)) return;
  const std::vector<std::string> names = logarithms(mean, pair.context.sizes, fits);
  if (!proves(evidence(pair), names.empty() ? bits_of_a_number : bits_of_a_name)) return;
  double constant = shortened(mean, fits);
  for (const KnownSize& s : pair.context.sizes) {
    const double log = std::copysign(std::log(static_cast<double>(s.size)), mean);
    if (s.size > 1 && fits(log)) constant = log;
  }
  found.push_back({Cause::added,
                   {.factor = constant, .factor_names = names, .term = "a constant"},
                   verify(pair, plus(constant)).residual});
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
