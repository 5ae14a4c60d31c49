#include "assay/compare/origin/rerun_noise.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

namespace assay {
namespace {

// For a single number whose errors are normal in all runs alike, P(|z0| > c max(|z1|, |z2|)) is about
// E[z0^2] (2 phi(0) / c)^2 = 0.64 / c^2: 0.6 % at c = 10 with two reruns, and far less for a norm over many
// elements. Wrong arithmetic stands further off: a clean module at 0.7 eps, the first wrong one at 8.6
// (docs/semantics.md F), which relative to the noise of reordered sums, far below one eps, is more.
constexpr double times_noise = 10;

bool is_settled(const Finding& f) {
  return (f.origin && std::isfinite(f.origin->local_ratio)) || !f.diagnoses.empty() || f.asks_for_bits;
}

// Of floating-point numbers, with NaN and infinities where the reference has them.
bool is_failure(const Finding& f) {
  return (f.verdict == Verdict::failed || f.verdict == Verdict::inherited) && f.metrics &&
         f.metrics->special_mismatch == 0 && is_float(f.actual_dtype) && is_float(f.reference_dtype);
}

}  // namespace

void add_rerun(RerunNoise& noise, const Report& rerun) {
  for (const Finding& f : rerun.findings) {
    if (!f.metrics || !std::isfinite(f.metrics->relative_l2)) continue;
    double& largest = noise[f.name];
    largest = std::max(largest, f.metrics->relative_l2);
  }
}

bool has_open_roots(const std::vector<Finding>& findings) {
  return std::ranges::any_of(
      findings, [](const Finding& f) { return f.verdict == Verdict::failed && f.metrics && !is_settled(f); });
}

void exempt_noise(std::vector<Finding>& findings, const RerunNoise& noise) {
  std::set<std::string> exempt;
  for (Finding& f : findings) {
    if (!is_failure(f) || is_settled(f)) continue;
    const auto at = noise.find(f.name);
    const double between_reruns = at == noise.end() ? 0 : at->second, allowed = times_noise * between_reruns;
    const double error = f.metrics->relative_l2;
    const bool is_noise = allowed > 0 && allowed < 1;  // an error as large as the tensor is none
    if (is_noise && error <= allowed) {
      exempt.insert(f.name);
      f.verdict = Verdict::exempt;
      f.origin.reset();
      f.exemption = Exemption{
          Exemption::Kind::noise_of_reruns, error, allowed,
          fmt::format("relative L2 {:.2g}; reruns of the reference differ by {:.2g}, of which {:g} times is "
                      "allowed",
                      error, between_reruns, times_noise)};
    } else if (f.origin && exempt.contains(f.origin->root)) {
      f.verdict = Verdict::failed;
      f.origin = Origin{Origin::Kind::unknown, std::numeric_limits<double>::quiet_NaN(),
                        fmt::format("{} is within the noise of reruns; this is not: relative L2 {:.2g}, "
                                    "{:.2g} between reruns",
                                    f.origin->root, error, between_reruns),
                        ""};
    }
  }
}

}  // namespace assay
