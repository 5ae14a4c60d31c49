#include <algorithm>
#include <optional>

#include "assay/compare/causes/values/failing_pair.h"
#include "assay/golden/evidence.h"

namespace assay {
namespace {

bool all_wrong_are(const FailingPair& pair, auto&& holds) {
  for (std::size_t i = 0; i < pair.wrong.at.size(); ++i) {
    if (!holds(pair.wrong.actual[i], pair.wrong.reference[i])) return false;
  }
  return true;
}

// f(actual, reference, error / allowed) of every element.
template <class F>
void for_each_element(const FailingPair& pair, F f) {
  pair.actual.for_each_window([&](const Tensor& window, std::int64_t begin) {
    const std::vector<double> a = window.values();
    const std::vector<double> r = pair.reference.window(begin, window.size()).values();
    for (std::size_t i = 0; i < a.size(); ++i) {
      const double bound = pair.bound(begin + static_cast<std::int64_t>(i));
      f(a[i], r[i], pair.ratio(a[i], r[i], bound));
    }
  });
}

// Below the smallest normal number of one of these everything is zero, and nothing above is.
std::optional<DType> flushed_below(const FailingPair& pair) {
  if (!is_float(pair.actual.dtype())) return std::nullopt;
  double largest_zeroed = 0, smallest_kept = infinity;
  for_each_element(pair, [&](double a, double r, double) {
    if (a == 0) largest_zeroed = std::max(largest_zeroed, std::abs(r));
    if (a != 0) smallest_kept = std::min(smallest_kept, std::abs(r));
  });
  for (const DType d : {pair.actual.dtype(), DType::float32, DType::float16}) {
    const double normal = std::ldexp(1.0, format_of(d).min_exponent());
    if (!(largest_zeroed < normal && normal <= smallest_kept)) continue;
    // Subnormals of the dtype itself say it alone; any other threshold must be hemmed in.
    const bool hemmed = largest_zeroed >= normal / 4 && smallest_kept <= normal * 4 && pair.over >= 8;
    if (hemmed || (normal == std::ldexp(1.0, format_of(pair.actual.dtype()).min_exponent()))) return d;
  }
  return std::nullopt;
}

void explain_zeros(const FailingPair& pair, std::vector<Diagnosis>& found) {
  if (!all_wrong_are(pair, [](double a, double) { return a == 0; })) return;
  const Fit fit = verify(pair, [&](const ElementWindow& w) {
    for (std::size_t i = 0; i < w.expected.size(); ++i) w.expected[i] = w.actual[i] == 0 ? 0 : w.reference[i];
  });
  if (!(fit.residual <= 1)) return;
  const std::int64_t size = pair.actual.size(), passing = size - pair.over;
  const bool all = pair.largest_actual == 0 && pair.finite;
  if (const auto dtype = flushed_below(pair)) {
    found.push_back({Cause::flushed, {.elements = pair.over, .dtype = *dtype}, fit.residual});
    return;
  }
  if (all) {
    found.push_back({Cause::zeros, {}, fit.residual});
    return;
  }
  // Where zeros are common among the elements that pass, a few more are no evidence.
  const double usual = static_cast<double>(pair.zeros + 1) / static_cast<double>(passing + 2);
  if (!proves(-std::log2(usual) * static_cast<double>(pair.over), 0)) return;
  found.push_back({Cause::zeros, {.elements = pair.over, .of = size}, fit.residual});
}

// Beyond what a narrower dtype holds there is its infinity (`saturated`: its largest number), nowhere else.
std::optional<Diagnosis> explain_limit(const FailingPair& pair, DType d, bool saturated) {
  const DType stored = pair.actual.dtype();
  const double largest = max_finite(d), limit = round_to(stored, largest);
  const double beyond = saturated ? limit : round_to(d, std::numeric_limits<double>::max());
  const auto is_beyond = [&](double a) { return std::isnan(beyond) ? std::isnan(a) : std::abs(a) == beyond; };
  if (!all_wrong_are(pair, [&](double a, double r) { return is_beyond(a) && std::abs(r) > largest; }))
    return std::nullopt;
  double smallest_beyond = infinity, largest_kept = 0, residual = 0;
  bool holds = true;
  for_each_element(pair, [&](double a, double r, double ratio) {
    if (std::isnan(a) && std::isnan(r)) return;
    if (is_beyond(a) && !(ratio <= 1)) {
      holds = holds && std::abs(r) > largest && (std::isnan(a) || (a < 0) == (r < 0));
      smallest_beyond = std::min(smallest_beyond, std::abs(r));
    } else {
      holds = holds && ratio <= 1;
      residual = std::max(residual, ratio);
      largest_kept = std::max(largest_kept, std::isfinite(r) ? std::abs(r) : 0);
    }
  });
  // Kept numbers end where the dtype ends: up to half a unit in the last place more rounds down to it.
  const double ulp = std::ldexp(1.0, format_of(d).max_exponent() - format_of(d).fraction_bits);
  const double last_kept = round_to(pair.reference.dtype(), largest + ulp / 2);
  if (!holds || largest_kept > last_kept) return std::nullopt;
  // An infinity may have other causes: the limit must be seen. A largest number says which one it is.
  const bool hemmed =
      smallest_beyond <= 32 * largest_kept || (pair.over >= 4 && smallest_beyond <= 4 * largest);
  if (!saturated && !hemmed) return std::nullopt;
  return Diagnosis{saturated ? Cause::saturated : Cause::overflow,
                   {.elements = pair.over, .dtype = d, .limit = beyond, .from = smallest_beyond},
                   residual};
}

// The same at a limit that no dtype has: clipped.
std::optional<Diagnosis> explain_clipping(const FailingPair& pair) {
  const double limit = std::abs(pair.wrong.actual.front());
  constexpr std::int64_t enough = 4;
  if (pair.over < enough || limit == 0 || limit != pair.largest_actual || !pair.finite) return std::nullopt;
  const auto clipped = [limit](double a, double r) {
    return std::abs(a) == limit && std::abs(r) > limit && (a < 0) == (r < 0);
  };
  if (!all_wrong_are(pair, clipped)) return std::nullopt;
  bool holds = true;
  std::int64_t different = 0;
  double last = 0, residual = 0, largest_kept = 0;
  for_each_element(pair, [&](double a, double r, double ratio) {
    if (ratio <= 1) {
      largest_kept = std::max(largest_kept, std::abs(r));
      residual = std::max(residual, ratio);
      return;
    }
    holds = holds && clipped(a, r);
    different += r != last ? 1 : 0;
    last = r;
  });
  // A tensor of one value is not clipped there: what is below it must be kept, up to near the limit.
  const bool hemmed = largest_kept >= limit / 2 && pair.over * 2 <= pair.actual.size();
  if (!holds || different < enough || !hemmed) return std::nullopt;
  return Diagnosis{Cause::saturated, {.elements = pair.over, .limit = limit}, residual};
}

}  // namespace

void explain_range(const FailingPair& pair, std::vector<Diagnosis>& found) {
  explain_zeros(pair, found);
  if (!found.empty() || !is_float(pair.actual.dtype())) return;
  for (const DType d :
       {DType::float8_e4m3fn, DType::float8_e5m2, DType::float16, DType::bfloat16, DType::float32}) {
    for (const bool saturated : {false, true}) {
      auto diagnosis = explain_limit(pair, d, saturated);
      if (!diagnosis) continue;
      found.push_back(std::move(*diagnosis));
      return;
    }
  }
  if (auto diagnosis = explain_clipping(pair)) found.push_back(std::move(*diagnosis));
}

}  // namespace assay
