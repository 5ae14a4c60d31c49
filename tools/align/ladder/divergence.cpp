#include "assay/align/ladder/divergence.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

#include "assay/compare/origin/missing_layers.h"

namespace assay::align {
namespace {

// The norm of the gradients is the optimizer's first number.
Phase phase_of(const Finding& f) {
  return f.id.slot == "loss" && f.id.arg == "grad_norm" ? Phase::optimizer : f.id.phase;
}

// In the order in which a step goes, whenever it was recorded; what is missing says less than what is wrong.
auto order_of(const Finding& f) {
  const bool is_measured = compared(f.verdict) || f.verdict == Verdict::no_rule;
  return std::tuple(is_measured ? 0 : 1, f.id.step, phase_of(f));
}

// What comes after a layer that was not computed is wrong for that.
std::optional<std::size_t> missing_layer(const std::vector<Finding>& findings, std::size_t before,
                                         std::optional<Diagnosis>& why) {
  const std::vector<MissingLayer> missing = missing_layers(findings, findings[before].id.step);
  if (missing.empty() || missing.front().first > before) return {};
  why = diagnosis(missing.front());
  return missing.front().first;
}

}  // namespace

std::optional<Divergence> divergence_of(const RungResult& result, const std::vector<Traffic>& traffic) {
  if (!result.report) return std::nullopt;
  const std::vector<Finding>& findings = result.report->findings;
  std::vector<std::size_t> roots = roots_of(*result.report);
  if (roots.empty()) return std::nullopt;
  std::ranges::stable_sort(roots, {}, [&](std::size_t i) { return order_of(findings[i]); });
  std::optional<Diagnosis> why;
  if (const auto missing = missing_layer(findings, roots.front(), why)) {
    std::erase(roots, *missing);
    roots.insert(roots.begin(), *missing);
  }
  const Finding& f = findings[roots.front()];
  Divergence d;
  d.strategies = switches_of(result.rung.parallel);
  d.phase = name(phase_of(f));
  d.module = f.id.module;
  d.tensor = f.name;
  d.step = f.id.step;
  d.micro_batch = f.id.micro_batch;
  d.finding = roots.front();
  d.others.assign(roots.begin() + 1, roots.end());
  if (f.origin) d.origin = f.origin->reason;
  if (why)
    d.diagnosis = std::move(why);
  else if (!f.diagnoses.empty())
    d.diagnosis = f.diagnoses.front();
  if (d.diagnosis) {
    d.cause = sentence(*d.diagnosis);
  } else {
    d.cause = f.reason;
    // One that says what was done may stand for it: the same mistake in a tensor of which more is known.
    const auto told = std::ranges::find_if(d.others, [&](std::size_t i) {
      return !findings[i].diagnoses.empty() && order_of(findings[i]) == order_of(f);
    });
    if (told != d.others.end()) {
      d.diagnosis_of_other = findings[*told].diagnoses.front();
      d.cause += fmt::format("; of {}: {}", findings[*told].name, sentence(*d.diagnosis_of_other));
    }
  }
  const bool is_gradient = f.id.slot == "grad", backward = f.id.phase != Phase::forward;
  d.behind = behind(traffic, f.id.module, is_gradient, backward);
  return d;
}

}  // namespace assay::align
