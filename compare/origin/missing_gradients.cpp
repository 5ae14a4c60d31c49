#include "assay/compare/origin/missing_gradients.h"

#include <fmt/format.h>

#include <set>
#include <string>
#include <utility>

#include "assay/compare/flow/gradient_names.h"

namespace assay {

void fail_missing_gradients(std::vector<Finding>& findings, const std::vector<Pair>& pairs) {
  std::set<std::pair<std::int64_t, std::string>> ran;  // by step
  std::set<std::pair<std::string, std::string>> held;  // parameters
  std::set<std::int64_t> with_gradients;               // steps
  for (const Pair& pair : pairs) {
    if (pair.actual == nullptr) continue;
    const Identity& id = pair.id();
    if (id.phase == Phase::forward && id.slot == "output") ran.emplace(id.step, id.module);
    if (id.slot == "param") held.emplace(id.module, id.arg);
    if (is_whole_gradient(id)) with_gradients.insert(id.step);
  }
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    Finding& f = findings[i];
    if (f.verdict != Verdict::missing_actual || !is_whole_gradient(f.id) ||
        !ran.contains({f.id.step, f.id.module}) || !held.contains({f.id.module, f.id.arg}) ||
        !with_gradients.contains(f.id.step))
      continue;
    f.verdict = Verdict::failed;
    f.reason = "only in the reference";
    f.diagnoses = {
        {Cause::no_gradient,
         {.step = f.id.step,
          .module = f.id.module,
          .how = fmt::format("the actual side has no gradient of it, though {} ran: it is frozen, or the "
                             "loss does not follow from it",
                             f.id.module)}}};
  }
}

bool is_missing_gradient(const Finding& f) {
  return !f.diagnoses.empty() && f.diagnoses.front().cause == Cause::no_gradient;
}

}  // namespace assay
