#include "assay/compare/causes/values/slice_matching.h"

#include <algorithm>
#include <array>
#include <numeric>

namespace assay {
namespace {

constexpr std::size_t projections = 4;
using Signature = std::array<double, projections>;

// Four weights in [-1, 1) from the place within the slice (splitmix64).
Signature weights(std::int64_t place) {
  std::uint64_t z = static_cast<std::uint64_t>(place) * 0x9e3779b97f4a7c15 + 0x9e3779b97f4a7c15;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  z ^= z >> 31;
  Signature w;
  for (std::size_t k = 0; k < projections; ++k)
    w[k] = static_cast<double>(static_cast<std::int16_t>(z >> (16 * k))) * 0x1p-15;
  return w;
}

struct Slices {
  std::vector<Signature> actual, reference;
  std::vector<double> slack;  // sum of squared tolerances
  std::vector<bool> moved;    // holds a wrong element
};

Slices project(const FailingPair& pair, std::int64_t count, std::int64_t inner) {
  Slices s;
  const auto n = static_cast<std::size_t>(count);
  s.actual.assign(n, {});
  s.reference.assign(n, {});
  s.slack.assign(n, 0);
  s.moved.assign(n, false);
  pair.actual.for_each_window([&](const Tensor& window, std::int64_t begin) {
    const std::vector<double> a = window.values(), r = pair.reference.window(begin, window.size()).values();
    std::int64_t in = begin % inner, row = begin / inner, j = row % count, outer = row / count;
    for (std::size_t i = 0; i < a.size(); ++i) {
      const Signature w = weights(outer * inner + in);
      const auto slice = static_cast<std::size_t>(j);
      for (std::size_t k = 0; k < projections; ++k) {
        s.actual[slice][k] += w[k] * a[i];
        s.reference[slice][k] += w[k] * r[i];
      }
      const std::int64_t at = begin + static_cast<std::int64_t>(i);
      const double bound = pair.bound(at), limit = pair.allowed(a[i], bound);
      s.slack[slice] += limit * limit;
      if (!(pair.ratio(a[i], r[i], bound) <= 1)) s.moved[slice] = true;
      if (++in < inner) continue;
      in = 0;
      if (++j < count) continue;
      j = 0;
      ++outer;
    }
  });
  return s;
}

double distance(const Signature& a, const Signature& b) {
  double d = 0;
  for (std::size_t k = 0; k < projections; ++k) d += (a[k] - b[k]) * (a[k] - b[k]);
  return d;
}

}  // namespace

SliceMatch match_slices(const FailingPair& pair, std::int64_t count, std::int64_t inner) {
  const Slices slices = project(pair, count, inner);
  const auto n = static_cast<std::size_t>(count);
  std::vector<std::size_t> by_first(n);
  std::iota(by_first.begin(), by_first.end(), std::size_t{0});
  const auto first = [&](std::size_t j) { return slices.reference[j][0]; };
  std::ranges::sort(by_first, {}, first);
  SliceMatch match;
  match.source.resize(n);
  std::vector<bool> used(n, false);
  for (std::size_t j = 0; j < n; ++j) {
    match.source[j] = static_cast<std::int64_t>(j);
    if (!slices.moved[j]) used[j] = true;
  }
  for (std::size_t j = 0; j < n; ++j) {
    if (!slices.moved[j]) continue;
    // Errors of the size of the tolerance, one independent of the other.
    const double reach = 3 * std::sqrt(slices.slack[j]) + 1e-9 * std::abs(slices.actual[j][0]);
    auto it = std::ranges::lower_bound(by_first, slices.actual[j][0] - reach, {}, first);
    const auto none = n;
    std::size_t best = none;
    double nearest = 0;
    constexpr int most = 4096;
    for (int tries = 0; it != by_first.end() && first(*it) <= slices.actual[j][0] + reach && tries < most;
         ++it, ++tries) {
      const double d = distance(slices.actual[j], slices.reference[*it]);
      if (d > reach * reach * projections || *it == j) continue;
      // Of slices that are equal one that is not taken yet.
      if (best == none || d < nearest || (d == nearest && used[best])) {
        best = *it;
        nearest = d;
      }
    }
    if (best == none) return {};
    used[best] = true;
    match.source[j] = static_cast<std::int64_t>(best);
    ++match.moved;
  }
  std::vector<std::int64_t> sorted = match.source;
  std::ranges::sort(sorted);
  match.bijective = std::ranges::adjacent_find(sorted) == sorted.end();
  return match;
}

}  // namespace assay
