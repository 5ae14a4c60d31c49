#include "assay/compare/causes/optimizer/agree.h"

#include <algorithm>
#include <map>
#include <utility>

#include "assay/compare/causes/optimizer/judge_update.h"

namespace assay {
namespace {

struct FaultCandidate {
  StepFault fault;
  std::int64_t votes = 0;
};

// At each step, the most frequent first.
std::vector<FaultCandidate> candidates_of(const RecordedSteps& recorded,
                                          const std::vector<JudgedStep>& judged, std::int64_t step) {
  std::map<std::pair<Cause, std::string>, FaultCandidate> all;
  for (std::size_t i = 0; i < judged.size(); ++i) {
    if (recorded.steps[i].step != step) continue;
    for (const JudgedStage* stage : {&judged[i].first, &judged[i].second, &judged[i].update}) {
      if (!stage->fault || !stage->fault->alternative) continue;
      FaultCandidate& c = all[{stage->fault->cause, stage->fault->key}];
      if (c.votes++ == 0) c.fault = *stage->fault;
    }
  }
  std::vector<FaultCandidate> found;
  for (auto& [key, c] : all) found.push_back(std::move(c));
  // Moments come before the update, which is made of them.
  const auto order = [](const FaultCandidate& c) {
    return std::pair(c.fault.cause == Cause::betas ? 0 : 1, -c.votes);
  };
  std::ranges::stable_sort(found, {}, order);
  return found;
}

void settle(const ParameterStep& s, const ReferenceRule& r, const std::vector<FaultCandidate>& candidates,
            JudgedStage& update) {
  if (!update.is_wrong()) return;
  for (const FaultCandidate& c : candidates) {
    const bool own = update.fault && update.fault->cause == c.fault.cause && update.fault->key == c.fault.key;
    if (own) return;
    if (takes_rule(s, r, c.fault, update)) return;
  }
}

}  // namespace

UpdateForm AlternativeRule::update_form(const ReferenceRule& r, const ParameterStep& s) const {
  const double rate = lr * r.lr.at(s.step);
  const std::int64_t t = r.t(s.step) + steps;
  return {1 - rate * r.decay_of(s.name()), rate * rule.rate(t), rule.floor(t),
          rule.place == EpsilonPlace::inside};
}

void agree(const RecordedSteps& recorded, const ReferenceRule& rule, std::vector<JudgedStep>& judged) {
  std::map<std::int64_t, std::vector<FaultCandidate>> by_step;
  for (const ParameterStep& s : recorded.steps) {
    if (!by_step.contains(s.step)) by_step[s.step] = candidates_of(recorded, judged, s.step);
  }
  for (std::size_t i = 0; i < judged.size(); ++i)
    settle(recorded.steps[i], rule, by_step.at(recorded.steps[i].step), judged[i].update);
}

}  // namespace assay
