#include "assay/compare/origin/find_convention.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "assay/compare/causes/values/factor_names.h"
#include "assay/compare/causes/values/known_sizes.h"
#include "assay/compare/flow/gradient_names.h"
#include "assay/compare/pairs/pair.h"
#include "assay/compare/result/finding.h"
#include "assay/compare/result/trouble.h"

namespace assay {
namespace {

// actual = value x reference in the least squares sense, and what is left of actual.
struct Factor {
  double value = 1, left = 0;
};

std::optional<Factor> factor_between(const TensorSource& actual, const TensorSource& reference) {
  double product = 0, square = 0, all = 0;
  actual.for_each_window([&](const Tensor& window, std::int64_t begin) {
    const std::vector<double> a = window.values(), r = reference.window(begin, window.size()).values();
    for (std::size_t i = 0; i < a.size(); ++i) {
      product += a[i] * r[i];
      square += r[i] * r[i];
      all += a[i] * a[i];
    }
  });
  if (!(product > 0)) return {};
  const double left = std::max(0.0, all - product * product / square);
  // Both were rounded.
  const double rounding = unit_roundoff(actual.dtype()) + unit_roundoff(reference.dtype());
  return Factor{product / square, std::sqrt(left / all) + rounding};
}

// Of the gradient in which the backward pass of a micro-batch begins, in all of them the same. One that is
// mostly something else is that of other tokens, and says nothing of it.
std::optional<Factor> factor_of_losses(std::span<const Finding> findings, std::span<const Pair> pairs,
                                       const Sides& sides) {
  std::set<std::pair<std::int64_t, std::int64_t>> seen;
  std::optional<Factor> all;
  std::int64_t told = 0, others = 0;
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    const Finding& f = findings[i];
    if (f.id.phase != Phase::backward || f.id.micro_batch < 0 || !is_comparable(f) ||
        f.metrics->reference.zero == f.metrics->elements || !seen.emplace(f.id.step, f.id.micro_batch).second)
      continue;
    std::optional<Factor> own;
    (void)trouble_in([&] {
      own = factor_between(merge(sides.actual, *pairs[i].actual).tensor,
                           merge(sides.reference, *pairs[i].reference).tensor);
    });
    if (!own || 2 * own->left * own->left > 1) {  // most of its square
      ++others;
      continue;
    }
    ++told;
    if (all && std::abs(own->value - all->value) > own->left * own->value + all->left * all->value) return {};
    if (!all || own->left < all->left) all = own;
  }
  return told >= others ? all : std::nullopt;
}

// A number of ranks or micro-batches, or one that a person writes.
std::optional<double> named(const Factor& f, std::span<const NamedFactor> names) {
  const auto is_near = [&](double x) { return std::abs(x - f.value) <= f.left * f.value; };
  const auto distance = [&](const NamedFactor& n) { return std::abs(n.value - f.value); };
  const auto nearest = std::ranges::min_element(names, {}, distance);
  if (nearest != names.end() && is_near(nearest->value)) return nearest->value;
  const double brief = shortened(f.value, is_near);
  return is_near(brief) && brief != f.value ? std::optional(brief) : std::nullopt;
}

// Nearer to the reference than to `factor` times it: |a - r| < |a - k r| where a = c r in the least squares
// sense with c on this side of (1 + k) / 2, and |a - r|^2 = |a|^2 + (1 - 2 c) |r|^2.
bool is_as_reference(const Finding& f, double factor) {
  const auto mean_square = [](const Side& s) { return s.std * s.std + s.mean * s.mean; };
  const double error = f.metrics->relative_l2,
               twice = mean_square(f.metrics->actual) / mean_square(f.metrics->reference) + 1 - error * error;
  return factor > 1 ? twice < 1 + factor : twice > 1 + factor;
}

// What does not come back in the parameters' gradients is no convention, nor what most gradients of
// micro-batches do not have: a part of the loss.
bool is_convention(double factor, std::span<const Finding> findings) {
  std::int64_t as_reference = 0, others = 0, scaled = 0, unscaled = 0;
  for (const Finding& f : findings) {
    if (!is_comparable(f)) continue;
    if (is_whole_gradient(f.id)) ++(is_as_reference(f, factor) ? as_reference : others);
    if (is_within_micro_batch(f.id)) ++(is_as_reference(f, factor) ? unscaled : scaled);
  }
  return as_reference > others && scaled > unscaled;
}

// Nothing where gradients are as large as the reference's, or where those of the parameters are not.
ScaleConvention of_gradients(std::span<const Finding> findings, std::span<const Pair> pairs,
                             const Sides& sides, std::span<const NamedFactor> names) {
  // Small gradients pass whatever their factor is; the sums that are made of them do not.
  const auto is_off = [](const Finding& f) {
    return f.metrics && f.metrics->different_bits > 0 && !f.asks_for_bits && is_within_micro_batch(f.id);
  };
  if (std::ranges::none_of(findings, is_off)) return {};
  const auto fitted = factor_of_losses(findings, pairs, sides);
  if (!fitted || std::abs(fitted->value - 1) <= fitted->left) return {};
  const auto factor = named(*fitted, names);
  if (!factor || !is_convention(*factor, findings)) return {};
  return {*factor, describe_factor(*factor, names)};
}

}  // namespace

bool is_comparable(const Finding& f) {
  return f.metrics && is_float(f.actual_dtype) && f.metrics->special_mismatch == 0 &&
         std::isfinite(f.metrics->relative_l2);
}

std::optional<ScaleConvention> scale_convention(std::span<Finding> findings, std::span<const Pair> pairs,
                                                const Sides& sides) {
  const std::vector<KnownSize> sizes = known_sizes(sides);
  ScaleConvention convention = of_gradients(findings, pairs, sides, factor_names(sizes));
  add_losses(convention, findings, sides, sizes);
  return convention.factor == 1 && convention.losses.empty() ? std::nullopt : std::optional(convention);
}

}  // namespace assay
