#include <algorithm>
#include <optional>

#include "assay/compare/causes/values/factor_names.h"
#include "assay/compare/causes/values/failing_pair.h"
#include "assay/compare/measure/measure.h"
#include "assay/golden/evidence.h"

namespace assay {
namespace {

// Whether the factor is that of all elements, or of those over tolerance only.
enum class Reach : std::uint8_t { all, wrong };

Model times(const FailingPair& pair, double factor, Reach reach) {
  const double stored = rounding_of(pair.actual.dtype());
  return [&pair, factor, reach, stored](const ElementWindow& w) {
    for (std::size_t i = 0; i < w.expected.size(); ++i) {
      const bool is_right = reach == Reach::wrong && pair.ratio(w.actual[i], w.reference[i], w.bound[i]) <= 1;
      w.expected[i] = is_right ? w.reference[i] : factor * w.reference[i];
      // What is multiplied was stored before, and is stored again.
      if (!is_right)
        w.bound[i] = w.bound[i] * std::max(1.0, std::abs(factor)) + stored * std::abs(w.expected[i]);
    }
  };
}

// Of the elements over tolerance the median ratio: a few other errors do not move it.
std::optional<double> median_ratio(const Sample& wrong) {
  std::vector<double> ratios;
  for (std::size_t i = 0; i < wrong.at.size(); ++i) {
    const double ratio = wrong.actual[i] / wrong.reference[i];
    if (std::isfinite(ratio) && ratio != 0) ratios.push_back(ratio);
  }
  if (ratios.size() * 2 <= wrong.at.size()) return std::nullopt;
  std::ranges::nth_element(ratios, ratios.begin() + static_cast<std::ptrdiff_t>(ratios.size() / 2));
  return ratios[ratios.size() / 2];
}

// Whether a factor near `k` may explain the sample: with twice the tolerance, as k is not refined yet.
bool plausible(const FailingPair& pair, double k) {
  for (std::size_t i = 0; i < pair.wrong.at.size(); ++i) {
    const double bound = pair.bound(pair.wrong.at[i]) * std::max(1.0, std::abs(k)) +
                         rounding_of(pair.actual.dtype()) * std::abs(k * pair.wrong.reference[i]);
    const double slack = 1e-6 * std::abs(pair.wrong.actual[i]);  // where nothing is allowed
    if (!(pair.ratio(pair.wrong.actual[i], k * pair.wrong.reference[i], 2 * bound + slack) <= 2))
      return false;
  }
  return true;
}

// Least squares in units of the tolerance.
double refined(const FailingPair& pair, double k, Reach reach) {
  double product = 0, square = 0;
  pair.actual.for_each_window([&](const Tensor& window, std::int64_t begin) {
    const std::vector<double> a = window.values();
    const std::vector<double> r = pair.reference.window(begin, window.size()).values();
    for (std::size_t i = 0; i < a.size(); ++i) {
      if (!std::isfinite(a[i]) || !std::isfinite(r[i]) || r[i] == 0) continue;
      const double bound = pair.bound(begin + static_cast<std::int64_t>(i));
      if (reach == Reach::wrong && pair.ratio(a[i], r[i], bound) <= 1) continue;
      double limit = pair.allowed(k * r[i], bound);
      if (!(limit > 0)) limit = std::abs(r[i]);
      product += a[i] / limit * (r[i] / limit);
      square += r[i] / limit * (r[i] / limit);
    }
  });
  const double better = product / square;
  return std::isfinite(better) ? better : k;
}

const NamedFactor* nearest(const std::vector<NamedFactor>& names, double k) {
  const auto distance = [k](const NamedFactor& n) { return std::abs(std::abs(k) / n.value - 1); };
  const auto best = std::ranges::min_element(names, {}, distance);
  return best != names.end() && distance(*best) < 0.05 ? &*best : nullptr;
}

// k is right where the fit is not much worse than with the best factor, rounding aside.
bool fits_equally(const FailingPair& pair, double k, const Fit& fit, const Fit& best) {
  if (!(fit.residual <= 1)) return false;
  if (!(best.residual <= 1)) return true;
  if (pair.actual.size() == 1)
    return true;  // which any factor fits; whether the name does, is seen by its bits
  const double rounding = rounding_of(pair.actual.dtype());
  // Of values of which a k-1'th is the error without it.
  const double rounded = rounding * k / (k - 1);
  return fit.after <= 4 * best.after + 4 * rounded * rounded * fit.before;
}

int significant_bits(double value) {
  int bits = 0, exponent = 0;
  for (double rest = std::abs(std::frexp(value, &exponent)); rest > 0 && bits < 53; ++bits) {
    rest = 2 * rest - std::floor(2 * rest);
  }
  return bits;
}

// A scalar, or a tensor of one value: a factor always fits. Only a name makes it more than that: how many
// bits the ratio says beyond falling onto one of the names by accident, between 1/64 and 64.
double evidence_of_name(const FailingPair& pair, double best, const NamedFactor& name, std::size_t names) {
  constexpr double range = 8.3;  // ln(64^2)
  double precision = std::max(1e-6, std::abs(std::abs(best) / name.value - 1));
  if (is_float(pair.actual.dtype()))
    precision = std::max(precision, unit_roundoff(coarser(pair.actual.dtype(), pair.reference.dtype())));
  // Ratios of round numbers fall onto names of themselves.
  precision = std::max(precision, std::ldexp(1.0, -significant_bits(pair.wrong.actual[0]) -
                                                      significant_bits(pair.wrong.reference[0])));
  return std::log2(range / (2 * precision * static_cast<double>(names)));
}

struct Factor {
  double value, best;  // as it is named, and as it fits best
  const NamedFactor* name;
  Fit fit;
  bool has_name() const { return value == -1 || (name != nullptr && std::abs(value) == name->value); }
};

std::optional<Factor> fitted(const FailingPair& pair, const std::vector<NamedFactor>& names, Reach reach) {
  const std::optional<double> start = median_ratio(pair.wrong);
  if (!start || !plausible(pair, *start)) return std::nullopt;
  const double best = refined(pair, *start, reach);
  Factor factor{best, best, nearest(names, best), verify(pair, times(pair, best, reach))};
  const Fit best_fit = factor.fit;
  const auto accept = [&](double candidate) {
    const Fit fit = verify(pair, times(pair, candidate, reach));
    if (!fits_equally(pair, candidate, fit, best_fit)) return false;
    factor.fit = fit;
    return true;
  };
  const double name = std::abs(best + 1) < 0.05 ? -1
                      : factor.name != nullptr  ? std::copysign(factor.name->value, *start)
                                                : best;
  const bool has_name = name == -1 || factor.name != nullptr;
  factor.value = has_name && accept(name) ? name : shortened(best, accept);
  return factor;
}

bool proven(const FailingPair& pair, const Factor& f) {
  return convincing(f.fit, chance(pair, f.value), f.has_name() ? 8 : 20, pair.over);
}

// Elements that are over tolerance by little were chosen by it: of those any factor near 1 makes as much.
bool far_over(const FailingPair& pair) {
  constexpr double far = 8;
  const auto is_far = [&](std::size_t i) {
    return pair.ratio(pair.wrong.actual[i], pair.wrong.reference[i], pair.bound(pair.wrong.at[i])) >= far;
  };
  std::size_t count = 0;
  for (std::size_t i = 0; i < pair.wrong.at.size(); ++i) count += is_far(i) ? 1 : 0;
  return 2 * count >= pair.wrong.at.size();
}

}  // namespace

void explain_factor(const FailingPair& pair, std::vector<Diagnosis>& found) {
  const std::vector<NamedFactor> names = factor_names(pair.context.sizes);
  const auto f = fitted(pair, names, Reach::all);
  if (!f) return;
  std::optional<double> evidence;
  if (!proven(pair, *f)) {
    if (!f->has_name() || !(f->fit.residual <= 1) || !(f->fit.after * 16 <= f->fit.before)) return;
    if (f->value == -1) {  // each element says one bit
      if (!proves(static_cast<double>(pair.over), 0)) return;
    } else {
      evidence = evidence_of_name(pair, f->best, *f->name, names.size());
      if (!(*evidence >= hint_bits)) return;
    }
  }
  if (f->value == -1) {
    found.push_back({Cause::sign, {}, f->fit.residual});
  } else {
    found.push_back({Cause::factor,
                     {.factor = f->value, .factor_names = names_of(f->value, names), .evidence = evidence},
                     f->fit.residual});
  }
}

void explain_factor_of_some(const FailingPair& pair, std::vector<Diagnosis>& found) {
  if (pair.over == pair.actual.size() || !far_over(pair)) return;
  const std::vector<NamedFactor> names = factor_names(pair.context.sizes);
  const auto f = fitted(pair, names, Reach::wrong);
  if (!f || !proven(pair, *f)) return;
  found.push_back({Cause::factor,
                   {.factor = f->value,
                    .factor_names = names_of(f->value, names),
                    .elements = pair.over,
                    .of = pair.actual.size()},
                   f->fit.residual});
}

}  // namespace assay
