#include "assay/compare/causes/optimizer/shared_faults.h"

#include <fmt/format.h>

#include <algorithm>

namespace assay {

void SharedFaults::add(const StepFault& f, const std::string& parameter, std::int64_t step,
                       std::size_t finding) {
  Group& g = groups_[{f.cause, f.key}];
  if (g.findings.empty()) {
    g.fault = f;
    g.step = step;
  }
  if (g.step == step) {
    if (!parameter.empty()) g.parameters.insert(parameter);
    g.first.push_back(finding);
  }
  g.residual = std::max(g.residual, f.residual);
  g.findings.push_back(finding);
}

void SharedFaults::report(std::vector<Finding>& findings, StepOrigins& origins,
                          const std::vector<NamedShape>& parameters) {
  for (auto& [key, g] : groups_) {
    std::ranges::sort(g.first);
    const auto not_passed =
        std::ranges::find_if(g.first, [&](std::size_t i) { return findings[i].verdict != Verdict::passed; });
    const std::size_t root = not_passed != g.first.end() ? *not_passed : g.first.front();
    Finding& f = findings[root];
    StepOrigin& own = origins[root];
    fail_by_inputs(f, fmt::format("it is not {}: error/allowed {:.3g}", own.how, own.ratio));
    f.diagnoses.push_back({g.fault.cause, parameters_of(g, parameters), g.residual});
    for (const std::size_t i : g.findings) {
      if (i != root && !origins[i].root) origins[i].root = root;
    }
    own.root.reset();
  }
}

CauseParameters SharedFaults::parameters_of(const Group& g, const std::vector<NamedShape>& all) {
  CauseParameters p = g.fault.parameters;
  p.step = g.step;
  p.later = g.findings.size() > g.first.size();
  p.value = g.fault.value;
  p.reference_value = g.fault.reference;
  p.evidence = g.fault.evidence;
  p.how = g.fault.text;
  if (!g.parameters.empty()) p.parameters = describe_parameters(g.parameters, all);
  return p;
}

}  // namespace assay
