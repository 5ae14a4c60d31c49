#include "assay/align/ladder/divergence.h"

#include <algorithm>
#include <tuple>

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

}  // namespace

std::optional<Divergence> divergence_of(const RungResult& result, const std::vector<Traffic>& traffic) {
  if (!result.report) return std::nullopt;
  const std::vector<Finding>& findings = result.report->findings;
  std::vector<std::size_t> roots = roots_of(*result.report);
  if (roots.empty()) return std::nullopt;
  std::ranges::stable_sort(roots, {}, [&](std::size_t i) { return order_of(findings[i]); });
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
  if (!f.diagnoses.empty()) {
    d.cause = f.diagnoses.front().text;
    d.kind = f.diagnoses.front().kind;
  } else {
    d.cause = f.reason;
  }
  const bool is_gradient = f.id.slot == "grad", backward = f.id.phase != Phase::forward;
  d.behind = behind(traffic, f.id.module, is_gradient, backward);
  return d;
}

}  // namespace assay::align
