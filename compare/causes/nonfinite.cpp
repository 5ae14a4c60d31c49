#include "assay/compare/causes/nonfinite.h"

#include <algorithm>
#include <map>
#include <utility>

namespace assay {

bool has_new_nonfinite(const Finding& f) {
  if (!f.metrics || f.metrics->special_mismatch == 0) return false;
  const Metrics& m = *f.metrics;
  return m.actual.nan + m.actual.infinite > m.reference.nan + m.reference.infinite + m.overflowed;
}

std::optional<std::size_t> nonfinite_source(const std::vector<Finding>& findings, std::size_t i,
                                            const std::vector<std::size_t>& inputs) {
  if (!has_new_nonfinite(findings[i])) return {};
  const auto source =
      std::ranges::find_if(inputs, [&](std::size_t k) { return has_new_nonfinite(findings[k]); });
  return source == inputs.end() ? std::nullopt : std::optional(*source);
}

void explain_nonfinite(std::vector<Finding>& findings) {
  std::map<std::pair<std::int64_t, std::int64_t>, const Finding*> first;  // by step and micro-batch
  std::map<std::int64_t, const Finding*> of_step;
  const Finding* of_run = nullptr;
  for (Finding& f : findings) {
    if (!has_new_nonfinite(f)) continue;
    const auto in_pass = first.find({f.id.step, f.id.micro_batch});
    const auto in_step = of_step.find(f.id.step);
    const Finding* before = in_pass != first.end()     ? in_pass->second
                            : f.id.micro_batch >= 0    ? nullptr
                            : in_step != of_step.end() ? in_step->second
                                                       : of_run;
    first.try_emplace({f.id.step, f.id.micro_batch}, &f);
    of_step.try_emplace(f.id.step, &f);
    if (of_run == nullptr) of_run = &f;
    const bool is_open = f.verdict == Verdict::failed || f.verdict == Verdict::undecided;
    if (!is_open || !f.diagnoses.empty()) continue;
    const Side& actual = f.metrics->actual;
    f.diagnoses.push_back({Cause::nonfinite,
                           {.elements = actual.nan + actual.infinite,
                            .of = f.metrics->elements,
                            .tensor = before == nullptr ? "" : before->name,
                            .how = actual.infinite == 0 ? "NaN"
                                   : actual.nan == 0    ? "Inf"
                                                        : "NaN or Inf"},
                           0});
  }
}

}  // namespace assay
