#include "assay/compare/pairs/baseline.h"
#include "assay/compare/measure/measure.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

namespace assay {
namespace {

// The 1e-7 of CANN's MARE and MERE, which keeps a zero of the golden values from being divided by.
constexpr double smallest_divisor = 1e-7;

struct Errors {
  double max_abs = 0, max_relative = 0, mean_relative = 0, rmse = 0;
};

Errors errors_of(const std::vector<double>& values, const std::vector<double>& golden) {
  Errors e;
  double relative = 0, squares = 0, elements = 0;
  for (std::size_t i = 0; i < golden.size(); ++i) {
    if (!std::isfinite(golden[i]) || !std::isfinite(values[i])) continue;  // the pattern was judged before
    const double error = std::abs(values[i] - golden[i]);
    const double share = error / (std::abs(golden[i]) + smallest_divisor);
    e.max_abs = std::max(e.max_abs, error);
    e.max_relative = std::max(e.max_relative, share);
    relative += share;
    squares += error * error;
    ++elements;
  }
  if (elements > 0) {
    e.mean_relative = relative / elements;
    e.rmse = std::sqrt(squares / elements);
  }
  return e;
}

// The least error worth a ratio: a baseline that happens to be exact must not ask for exactness. One rounding
// to the dtype, which every correct result may have.
Errors one_rounding(const std::vector<double>& golden, DType dtype) {
  const double u = unit_roundoff(dtype);
  double largest = 0, squares = 0, elements = 0;
  for (const double g : golden) {
    if (!std::isfinite(g)) continue;
    largest = std::max(largest, std::abs(g));
    squares += g * g;
    ++elements;
  }
  return {u * largest, u, u, elements > 0 ? u * std::sqrt(squares / elements) : 0};
}

// max |((g + 0.3) - 0.3) - g| in the dtype
double noise_of(const std::vector<double>& golden, DType dtype) {
  const double shift = round_to(dtype, 0.3);
  double noise = 0;
  for (const double value : golden) {
    if (!std::isfinite(value)) continue;
    const double g = round_to(dtype, value);
    noise = std::max(noise, std::abs(round_to(dtype, round_to(dtype, g + shift) - shift) - g));
  }
  return noise;
}

}  // namespace

void judge_by_baseline(Finding& f, const Tensor& actual, const Tensor& golden, const Tensor& baseline,
                       const Policy& policy, int threads) {
  f.metrics = measure(actual, golden, {}, threads);
  f.row = policy.name + ": error in ratio to that of float32 arithmetic stored as " +
          std::string(name(actual.dtype()));
  if (f.metrics->special_mismatch > 0) return;
  const std::vector<double> truth = golden.values();
  const Errors own = errors_of(actual.values(), truth), base = errors_of(baseline.values(), truth);
  const Errors floor = one_rounding(truth, actual.dtype());
  std::vector<std::string> texts;
  const auto limit = [&](std::string_view what, double times, double error, double of_baseline, double least,
                         double added) {
    if (times == 0) return;
    const double allowed = times * std::max(of_baseline, least) + added;
    const double ratio = error <= 0 ? 0 : error / allowed;
    f.ratio = std::max(f.ratio, ratio);
    texts.push_back(fmt::format("{} {:.3g}, {:.3g} of the allowed {:g} x {:.3g}{}", what, error, ratio, times,
                                std::max(of_baseline, least),
                                added > 0 ? fmt::format(" + {:.3g}", added) : ""));
  };
  const Limits& limits = policy.limits;
  limit("max relative", limits.max_relative, own.max_relative, base.max_relative, floor.max_relative, 0);
  limit("mean relative", limits.mean_relative, own.mean_relative, base.mean_relative, floor.mean_relative, 0);
  limit("rmse", limits.rmse, own.rmse, base.rmse, floor.rmse, 0);
  const double noise = limits.noise > 0 ? limits.noise * noise_of(truth, actual.dtype()) : 0;
  limit("max abs", limits.max_abs, own.max_abs, base.max_abs, noise > 0 ? 0 : floor.max_abs, noise);
  f.rule = fmt::format("{} ({})", f.row, fmt::join(texts, "; "));
  const Errors zeros = errors_of(std::vector<double>(truth.size(), 0.0), truth);
  if (f.ratio <= 1 && limits.max_abs > 0 && zeros.max_abs > 0 && f.metrics->max_abs > 0 &&
      zeros.max_abs <= limits.max_abs * base.max_abs + noise) {
    f.verdict = Verdict::mistrusted;
    f.reason = "every value is below what the noise of the dtype allows: zeros would have passed";
  }
  if (f.ratio <= 1) return;
  f.verdict = Verdict::failed;
  f.reason = fmt::format("error/allowed {:.3g}: {}", f.ratio, fmt::join(texts, "; "));
}

}  // namespace assay
