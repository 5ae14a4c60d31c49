#include <algorithm>
#include <array>
#include <optional>

#include "assay/compare/causes/values/failing_pair.h"

namespace assay {
namespace {

// How a value was stored in a narrower dtype.
struct Storage {
  DType dtype;
  Rounding rounding;
  bool flushes;  ///< what would be subnormal becomes zero
  double normal = std::ldexp(1.0, format_of(dtype).min_exponent());

  double operator()(double value) const {
    const double rounded = round_to(dtype, value, rounding);
    return flushes && std::abs(rounded) < normal ? std::copysign(0.0, rounded) : rounded;
  }
};

bool on_grid(DType d, double value) {
  return std::isnan(value) || round_to(d, value) == value;
}

// What the value was before it was stored as `stored`, as near to `value` as that allows; infinity if that is
// further away than `reach`.
double preimage(const Storage& store, double value, double stored, double reach) {
  if (store(value) == stored || (std::isnan(stored) && std::isnan(store(value)))) return value;
  if (!std::isfinite(value) || !(reach > 0)) return infinity;
  // No further than the stored value, which is stored as itself.
  const double toward = std::clamp(stored - value, -reach, reach);
  if (store(value + toward) != stored) return infinity;
  double fails = 0, works = 1;  // in units of `toward`
  for (int i = 0; i < 20; ++i) {
    const double middle = (fails + works) / 2;
    (store(value + middle * toward) == stored ? works : fails) = middle;
  }
  return value + works * toward;
}

bool explains_sample(const FailingPair& pair, const Storage& store) {
  const std::size_t tries = std::min<std::size_t>(256, pair.wrong.at.size());
  for (std::size_t t = 0; t < tries; ++t) {
    const std::size_t i = t * pair.wrong.at.size() / tries;
    const double r = pair.wrong.reference[i], reach = pair.allowed(r, pair.bound(pair.wrong.at[i]));
    if (preimage(store, r, pair.wrong.actual[i], reach) == infinity) return false;
  }
  return true;
}

struct Explained {
  Storage store;
  Fit fit;
  std::int64_t exact;  ///< wrong elements whose bits are those of the stored reference
};

std::optional<Explained> explained_by(const FailingPair& pair, const Storage& store) {
  if (!explains_sample(pair, store)) return std::nullopt;
  bool grid = true;
  std::int64_t exact = 0;
  const Fit fit = verify(pair, [&](const ElementWindow& w) {
    for (std::size_t i = 0; i < w.expected.size(); ++i) {
      const double a = w.actual[i], r = w.reference[i];
      grid = grid && on_grid(store.dtype, a);
      const double before = grid ? preimage(store, r, a, pair.allowed(r, w.bound[i])) : infinity;
      // The error is how far the reference is from a value that would have been stored as these bits.
      w.expected[i] =
          before == infinity ? infinity : a + (std::isfinite(r) && std::isfinite(a) ? r - before : 0);
      exact += before == r ? 1 : 0;
    }
  });
  if (!(fit.residual <= 1)) return std::nullopt;
  return Explained{store, fit, exact};
}

// The way of storing that leaves the most elements bit for bit.
std::optional<Explained> best_storage(const FailingPair& pair, DType d) {
  std::optional<Explained> best;
  for (const bool flushes : {false, true}) {
    for (const Rounding r : {Rounding::nearest_even, Rounding::toward_zero, Rounding::nearest_away}) {
      if (best && best->exact >= pair.actual.size() / 100 * 99) continue;
      auto explained = explained_by(pair, {d, r, flushes});
      if (explained && (!best || explained->exact > best->exact)) best = explained;
    }
  }
  return best;
}

CauseParameters parameters_of(const FailingPair& pair, const Explained& e) {
  return {.dtype = e.store.dtype,
          .actual_dtype = pair.actual.dtype(),
          .reference_dtype = pair.reference.dtype(),
          .rounding = e.store.rounding,
          .flushes = e.store.flushes,
          .share = static_cast<double>(e.exact) / static_cast<double>(pair.actual.size())};
}

// Narrower in name, too.
void explain_narrower_dtype(const FailingPair& pair, std::vector<Diagnosis>& found) {
  const auto best = best_storage(pair, pair.actual.dtype());
  constexpr double bits_of_storage = 3;
  if (!best || !convincing(best->fit, chance(pair), bits_of_storage, pair.over)) return;
  found.push_back({Cause::precision, parameters_of(pair, *best), best->fit.residual});
}

}  // namespace

void explain_precision(const FailingPair& pair, std::vector<Diagnosis>& found) {
  const DType declared = pair.actual.dtype(), reference = pair.reference.dtype();
  if (!is_float(declared) || !is_float(reference)) return;
  // The coarsest grid first: whoever lies on it lies on the finer ones, too.
  for (const DType d : {DType::float8_e5m2, DType::float8_e4m3fn, DType::bfloat16, DType::float16,
                        DType::tfloat32, DType::hfloat32, DType::float32}) {
    if (format_of(d).precision() >= format_of(declared).precision()) continue;
    const bool possible = std::ranges::all_of(pair.spread.actual, [d](double a) { return on_grid(d, a); }) &&
                          std::ranges::all_of(pair.wrong.actual, [d](double a) { return on_grid(d, a); });
    if (!possible) continue;
    const auto best = best_storage(pair, d);
    // Bits by accident: a value lies on the grid with one in 2^(bits that are missing).
    const int missing = format_of(declared).precision() - format_of(d).precision();
    const double accident = std::ldexp(1.0, -std::min(missing, 20));
    if (!best || !convincing(best->fit, accident, 5, pair.over)) continue;
    CauseParameters p = parameters_of(pair, *best);
    if (d == DType::float16) {
      // Between the smallest normal and the largest number of float16 the two are one.
      const auto wider = explained_by(pair, {DType::tfloat32, best->store.rounding, best->store.flushes});
      if (wider && wider->exact == best->exact) p.or_dtype = DType::tfloat32;
    }
    found.push_back({Cause::precision, std::move(p), best->fit.residual});
    return;
  }
  if (format_of(declared).precision() < format_of(reference).precision()) explain_narrower_dtype(pair, found);
}

}  // namespace assay
