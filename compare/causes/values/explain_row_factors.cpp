#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>

#include "assay/compare/causes/values/factor_names.h"
#include "assay/compare/causes/values/failing_pair.h"

namespace assay {
namespace {

// The elements that share a factor: those of equal (position / inner) % count.
struct Groups {
  std::int64_t count, inner;
  std::string of;  ///< "row", "index of dim 1"
  std::int64_t at(std::int64_t position) const { return position / inner % count; }
  /// Another element of the group of `position`, for s = 1, 2, ..; the same if there is none.
  std::int64_t sibling(std::int64_t position, std::int64_t s, std::int64_t size) const {
    const std::int64_t members = size / count, outer = position / inner / count;
    const std::int64_t member = (outer * inner + position % inner + s) % members;
    return (member / inner * count + at(position)) * inner + member % inner;
  }
};

std::vector<Groups> possible_groups(const FailingPair& pair) {
  constexpr std::int64_t most = 1 << 20;
  const Shape& shape = pair.actual.shape();
  const std::int64_t size = pair.actual.size();
  std::vector<Groups> all;
  const auto add = [&](Groups g) {
    const bool known =
        std::ranges::any_of(all, [&](const Groups& o) { return o.count == g.count && o.inner == g.inner; });
    if (g.count > 1 && g.count <= most && size / g.count >= 4 && !known) all.push_back(std::move(g));
  };
  std::int64_t inner = size;
  for (std::size_t d = 0; d < shape.size(); ++d) {
    inner /= shape[d];
    const std::string named =
        shape.size() == 2 ? (d == 0 ? "row" : "column") : fmt::format("index of dim {}", d);
    add({shape[d], inner, named});
  }
  if (shape.size() > 2) add({size / shape.back(), shape.back(), "row"});
  std::ranges::stable_sort(all, {}, &Groups::count);  // the fewest factors first
  return all;
}

// Whether two elements of one group have one ratio, at some of the wrong ones.
bool plausible(const FailingPair& pair, const Groups& groups) {
  const std::size_t tries = std::min<std::size_t>(64, pair.wrong.at.size());
  for (std::size_t t = 0; t < tries; ++t) {
    const std::size_t i = t * pair.wrong.at.size() / tries;
    const std::int64_t other = groups.sibling(pair.wrong.at[i], 1, pair.actual.size());
    const double a = pair.wrong.actual[i], r = pair.wrong.reference[i];
    const double b = pair.actual.value(other), s = pair.reference.value(other);
    // a = k r + e and b = k s + f: a s - b r = e s - f r.
    const double e = 2 * pair.allowed(a, pair.bound(pair.wrong.at[i])) + 1e-6 * std::abs(a);
    const double f = 2 * pair.allowed(b, pair.bound(other)) + 1e-6 * std::abs(b);
    if (!(std::abs(a * s - b * r) <= e * std::abs(s) + f * std::abs(r))) return false;
  }
  return true;
}

struct Factors {
  std::vector<double> of;   // 1 where nothing is wrong
  std::int64_t needed = 0;  // groups where something is
};

// Least squares in units of the tolerance.
Factors factors_of(const FailingPair& pair, const Groups& groups) {
  const auto count = static_cast<std::size_t>(groups.count);
  std::vector<double> product(count), square(count);
  std::vector<bool> wrong(count, false);
  pair.actual.for_each_window([&](const Tensor& window, std::int64_t begin) {
    const std::vector<double> a = window.values();
    const std::vector<double> r = pair.reference.window(begin, window.size()).values();
    for (std::size_t i = 0; i < a.size(); ++i) {
      const std::int64_t at = begin + static_cast<std::int64_t>(i);
      const double bound = pair.bound(at);
      const auto g = static_cast<std::size_t>(groups.at(at));
      if (!(pair.ratio(a[i], r[i], bound) <= 1)) wrong[g] = true;
      if (r[i] == 0) continue;
      double limit = pair.allowed(r[i], bound);
      if (!(limit > 0)) limit = std::abs(r[i]);
      product[g] += a[i] / limit * (r[i] / limit);
      square[g] += r[i] / limit * (r[i] / limit);
    }
  });
  Factors factors{std::vector<double>(count, 1), std::ranges::count(wrong, true)};
  for (std::size_t g = 0; g < count; ++g) {
    if (wrong[g] && square[g] > 0) factors.of[g] = product[g] / square[g];
  }
  return factors;
}

// How easily a factor of its own explains an element by accident: others of its group in its place.
double chance_within(const FailingPair& pair, const Groups& groups, const std::vector<double>& factors) {
  const std::size_t tries = std::min<std::size_t>(512, pair.wrong.at.size());
  double hits = 0, trials = 0;
  for (std::size_t t = 0; t < tries; ++t) {
    const std::size_t i = t * pair.wrong.at.size() / tries;
    const std::int64_t at = pair.wrong.at[i];
    const double k = factors[static_cast<std::size_t>(groups.at(at))];
    for (const std::int64_t step : {1, 2, 3, 5, 8, 13, 21, 34}) {
      const std::int64_t other = groups.sibling(at, step, pair.actual.size());
      if (other == at) continue;
      ++trials;
      hits += pair.ratio(pair.wrong.actual[i], k * pair.reference.value(other), pair.bound(at)) <= 1 ? 1 : 0;
    }
  }
  return (hits + 1) / (trials + 2);
}

std::optional<CauseParameters> parameters_of(const FailingPair& pair, const Groups& groups,
                                             const std::vector<double>& factors) {
  const double slack = std::max(pair.context.allowed.rtol, 1e-6);
  std::vector<std::size_t> changed;
  for (std::size_t g = 0; g < factors.size(); ++g) {
    if (factors[g] != 1) changed.push_back(g);
  }
  if (changed.empty()) return std::nullopt;
  double low = factors[changed.front()], high = low;
  for (const std::size_t g : changed) {
    low = std::min(low, factors[g]);
    high = std::max(high, factors[g]);
  }
  CauseParameters p = {.elements = static_cast<std::int64_t>(changed.size()),
                       .of = static_cast<std::int64_t>(factors.size()),
                       .along = groups.of};
  constexpr std::size_t most_listed = 4;
  if (changed.size() > most_listed) {
    // One factor for many is the finding; many are a range.
    if (high - low <= 2 * slack * std::abs(high))
      p.factor = (low + high) / 2;
    else
      p.factors = {low, high};
    return p;
  }
  const std::vector<NamedFactor> names = factor_names(pair.context.sizes);
  for (const std::size_t g : changed) {
    double k = factors[g];
    for (const NamedFactor& n : names)
      k = std::abs(std::abs(k) / n.value - 1) <= 0.1 * slack ? std::copysign(n.value, k) : k;
    p.positions.push_back(static_cast<std::int64_t>(g));
    p.factors.push_back(k);
    p.factor_names.push_back(fmt::format("{}", fmt::join(names_of(k, names), " or ")));
  }
  return p;
}

}  // namespace

void explain_row_factors(const FailingPair& pair, std::vector<Diagnosis>& found) {
  if (!pair.finite) return;
  for (const Groups& groups : possible_groups(pair)) {
    if (!plausible(pair, groups)) continue;
    const auto [factors, needed] = factors_of(pair, groups);
    const Fit fit = verify(pair, [&groups, &factors = factors](const ElementWindow& w) {
      for (std::size_t i = 0; i < w.expected.size(); ++i) {
        const double k = factors[static_cast<std::size_t>(groups.at(w.begin + static_cast<std::int64_t>(i)))];
        w.expected[i] = k * w.reference[i];
        w.bound[i] *= std::max(1.0, std::abs(k));
      }
    });
    constexpr double bits_of_a_factor = 20;
    const double parameters = bits_of_a_factor * static_cast<double>(needed);
    if (!convincing(fit, chance_within(pair, groups, factors), parameters, pair.over)) continue;
    auto parameters_of_cause = parameters_of(pair, groups, factors);
    if (!parameters_of_cause) continue;
    found.push_back({Cause::row_factors, std::move(*parameters_of_cause), fit.residual});
    return;
  }
}

}  // namespace assay
