#include "assay/compare/causes/values/rotation.h"

#include <algorithm>
#include <numbers>

#include "assay/operators/engine/golden.h"
#include "assay/operators/engine/list.h"

namespace assay {

// What the operator turns (1, 0) by at position 1.
std::vector<double> frequencies_of(const Rotation& r) {
  Attributes attributes{{"base_theta", r.base}, {"offset", 1.0}};
  if (r.yarn > 0) attributes.set("yarn.factor", r.yarn);
  std::vector<double> x(static_cast<std::size_t>(r.rotated), 0);
  std::fill_n(x.begin(), r.pairs(), 1);
  const NamedTensor input{"x", Tensor::from_values(DType::float64, {1, r.rotated}, x)};
  const auto golden = compute_golden(ops::rope, {&input, 1}, attributes, Level::fp64);
  const Tensor& y = output_named(golden, "y");
  std::vector<double> frequencies;
  for (std::int64_t j = 0; j < r.pairs(); ++j)
    frequencies.push_back(std::atan2(y.value(j + r.pairs()), y.value(j)));
  return frequencies;
}

bool keeps_lengths(const FailingPair& pair, const Rotation& r, Head a, Head g) {
  for (std::int64_t j = 0; j < r.pairs(); ++j) {
    const auto [x, y] = r.pair(j);
    const double slack =
        2 * (pair.allowed(a[x], 0) + pair.allowed(a[y], 0)) + 1e-6 * std::abs(a[x]) + 1e-6 * std::abs(a[y]);
    if (!(std::abs(std::hypot(a[x], a[y]) - std::hypot(g[x], g[y])) <= slack)) return false;
  }
  return true;
}

// Integer Delta from the slowest pair, which has turned less than half a circle, to the fastest, which tells
// it to the last place.
std::int64_t delta_of(const Rotation& r, std::span<const double> frequencies, Head a, Head g) {
  double longest = 0;
  for (std::int64_t j = 0; j < r.pairs(); ++j) {
    const auto [x, y] = r.pair(j);
    longest = std::max(longest, std::hypot(g[x], g[y]));
  }
  double delta = 0;
  for (std::int64_t j = r.pairs() - 1; j >= 0; --j) {
    const auto [x, y] = r.pair(j);
    if (std::hypot(g[x], g[y]) < 0.05 * longest) continue;
    const double angle = std::atan2(a[y] * g[x] - a[x] * g[y], a[x] * g[x] + a[y] * g[y]);
    const double f = frequencies[static_cast<std::size_t>(j)];
    delta += std::remainder(angle - delta * f, 2 * std::numbers::pi) / f;
  }
  return std::isfinite(delta) && std::abs(delta) < 1e9 ? std::llround(delta) : 0;
}

void rotate(const Rotation& r, std::span<const double> frequencies, std::int64_t delta, Head g,
            std::span<double> out) {
  std::ranges::copy(g, out.begin());
  if (delta == 0) return;
  for (std::int64_t j = 0; j < r.pairs(); ++j) {
    const auto [x, y] = r.pair(j);
    const double angle = static_cast<double>(delta) * frequencies[static_cast<std::size_t>(j)];
    const double c = std::cos(angle), s = std::sin(angle);
    out[x] = c * g[x] - s * g[y];
    out[y] = c * g[y] + s * g[x];
  }
}

}  // namespace assay
