#include <fmt/format.h>

#include "assay/compare/origin/isolation.h"

namespace assay {

std::string Isolation::why_unjudged(std::size_t i) const {
  const Pair& pair = pairs_[i];
  if (pair.reference == nullptr) return "the reference lacks it";
  if (pair.actual == nullptr) return "it is only in the reference";
  if (const auto judged = results_.find(i); judged != results_.end() && judged->second.ratio <= 1)
    return "roundings decide between several right values, or only some of its rows were judged";
  if (findings_[i].id.slot == "param" && findings_[i].id.phase == Phase::forward && made_of(i).empty())
    return "both sides start with other bits of it; give them the same checkpoint";
  if (!is_result(findings_[i].id) || findings_[i].id.phase == Phase::optimizer)
    return "it follows from no recorded values in a way that is known; record what made it (PyTorch: assay "
           "record --functions)";
  for (const auto& [calls, tensor] :
       {std::pair(&local_.reference_calls(), pair.reference), {&local_.actual_calls(), pair.actual}}) {
    const std::vector<RecordedCall> made = calls->producers(*tensor);
    if (made.empty() && !calls->runs(tensor->id.step, tensor->id.module))
      return "no call of its module was recorded";
    const Operator* op = calls->operator_of(*tensor);
    if (op == nullptr && tensor->op.empty())
      return "its operator was not recorded; an [[operator]] rule names it";
    if (op == nullptr)
      return fmt::format(
          "'{}' is no known operator; an [[operator]] rule names one, or record its parts "
          "(PyTorch: assay record --functions)",
          tensor->op);
    if (made.empty()) return fmt::format("it is not known as a result of {}", op->name);
    for (const RecordedCall& call : made) {
      if (const std::string missing = call.missing(); !missing.empty())
        return fmt::format("{} of {} was not recorded", missing, op->name);
    }
  }
  if (local_.judge().is_spent()) return "it was left out, as enough was replayed before it";
  return "no attributes of its operator make the reference's result";
}

}  // namespace assay
