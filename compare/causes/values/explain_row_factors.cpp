#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <optional>

#include "assay/compare/causes/values/factor_names.h"
#include "assay/compare/causes/values/failing_pair.h"
#include "assay/golden/evidence.h"

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
    // What each rank holds of it may have a factor of its own.
    for (const KnownSize& ranks : pair.context.sizes) {
      if (ranks.size > 1 && ranks.size < shape[d] && shape[d] % ranks.size == 0)
        add({ranks.size, shape[d] / ranks.size * inner,
             fmt::format("rank's piece of dim {} ({} = {})", d, ranks.size, ranks.name)});
    }
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
  if (std::ranges::count(p.factors, p.factors.front()) == std::ssize(p.factors)) p.factor = p.factors.front();
  return p;
}

Fit verify_factors(const FailingPair& pair, const Groups& groups, const std::vector<double>& factors) {
  return verify(pair, [&](const ElementWindow& w) {
    for (std::size_t i = 0; i < w.expected.size(); ++i) {
      const double k = factors[static_cast<std::size_t>(groups.at(w.begin + static_cast<std::int64_t>(i)))];
      w.expected[i] = k * w.reference[i];
      w.bound[i] *= std::max(1.0, std::abs(k));
    }
  });
}

struct RowSums {
  std::vector<double> sums, magnitudes;
};
RowSums sums_of(const TensorSource& t, const Groups& groups) {
  RowSums rows{std::vector<double>(static_cast<std::size_t>(groups.count)), {}};
  rows.magnitudes = rows.sums;
  t.for_each_window([&](const Tensor& window, std::int64_t begin) {
    const std::vector<double> x = window.values();
    for (std::size_t i = 0; i < x.size(); ++i) {
      const auto row = static_cast<std::size_t>(groups.at(begin + static_cast<std::int64_t>(i)));
      rows.sums[row] += x[i];
      rows.magnitudes[row] += std::abs(x[i]);
    }
  });
  return rows;
}

// The one sum that all rows have, as a router's weights do.
std::optional<double> common_sum(const TensorSource& t, const RowSums& rows) {
  // Each element is rounded by the division, by a scale, and where it is stored; its row by this addition.
  const double slack = 3 * unit_roundoff(t.dtype()) +
                       static_cast<double>(t.shape().back()) * std::numeric_limits<double>::epsilon() / 2;
  // By accident a row has the sum of the first with 2 `slack`.
  const double evidence = -std::log2(2 * slack) * static_cast<double>(rows.sums.size() - 1);
  const double sum = rows.sums.front();
  if (sum == 0 || !proves(evidence, 0)) return std::nullopt;
  for (std::size_t row = 0; row < rows.sums.size(); ++row) {
    const double magnitude = rows.magnitudes[row] + rows.magnitudes.front();
    if (!(std::abs(rows.sums[row] - sum) <= slack * magnitude)) return std::nullopt;
  }
  return sum;
}

// Divided by their own sums the rows are the reference's: no row has a parameter, but one element less to
// show.
bool explain_normalization(const FailingPair& pair, const Groups& rows, std::vector<Diagnosis>& found) {
  const bool are_rows =
      rows.inner == pair.actual.shape().back() && rows.inner * rows.count == pair.actual.size();
  if (!are_rows || !is_float(pair.reference.dtype())) return false;
  const auto sum = common_sum(pair.reference, sums_of(pair.reference, rows));
  if (!sum) return false;
  const std::vector<double> sums = sums_of(pair.actual, rows).sums;
  std::vector<double> factors;
  for (const double s : sums) factors.push_back(s / *sum);
  const Fit fit = verify_factors(pair, rows, factors);
  if (!convincing(fit, chance_within(pair, rows, factors), bits_of_a_number, pair.over - rows.count))
    return false;
  const auto [least, most] = std::ranges::minmax(sums);
  found.push_back({Cause::not_normalized, {.factors = {least, most}, .reference_value = *sum}, fit.residual});
  return true;
}

}  // namespace

void explain_row_factors(const FailingPair& pair, std::vector<Diagnosis>& found) {
  if (!pair.finite) return;
  for (const Groups& groups : possible_groups(pair)) {
    if (!plausible(pair, groups)) continue;
    if (explain_normalization(pair, groups, found)) return;
    const auto [factors, needed] = factors_of(pair, groups);
    const Fit fit = verify_factors(pair, groups, factors);
    const double parameters = bits_of_a_number * static_cast<double>(needed);
    if (!convincing(fit, chance_within(pair, groups, factors), parameters, pair.over)) continue;
    auto p = parameters_of(pair, groups, factors);
    if (!p) continue;
    found.push_back({Cause::row_factors, std::move(*p), fit.residual});
    return;
  }
}

}  // namespace assay
