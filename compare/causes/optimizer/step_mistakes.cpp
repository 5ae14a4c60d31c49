#include "assay/compare/causes/optimizer/step_mistakes.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "assay/compare/causes/optimizer/name_mistake.h"
#include "assay/compare/causes/optimizer/step_call.h"
#include "assay/golden/evidence.h"

namespace assay {

namespace {

// A search that finds nothing takes a second. With so many in a step only what others showed is tried.
constexpr std::size_t most_unexplained = 8;

}  // namespace

// One step of one parameter.
class StepSearch {
 public:
  StepSearch(StepMistakes& all, const ParameterStep& s, const StepRule& right,
             const std::vector<OtherGradient>& others)
      : known_(all.known_[{s.step, right.op}]),
        unexplained_(all.unexplained_[s.step]),
        s_(s),
        t_(s.actual),
        right_(right),
        states_(t_.states.size()),
        hypotheses_(known_, s, right, others),
        judged_(t_.results()) {}

  std::vector<JudgedResult> judge(const StepRule& reference) {
    std::vector<std::size_t> every(judged_.size());
    std::iota(every.begin(), every.end(), std::size_t{0});
    const auto of_reference = step_errors(s_.reference, reference, every, Elements::some),
               own = step_errors(t_, right_, every, Elements::all);
    for (const std::size_t k : every) {
      // Nothing is wrong by a rule that does not make all of the reference.
      judged_[k].known =
          of_reference[k].holds() &&
          (own[k].holds() || step_errors(s_.reference, reference, k, Elements::until_wrong).holds());
      if (judged_[k].known) judged_[k].errors = own[k];
    }
    StepRule of_states = right_;
    if (const auto k = first_wrong(states_)) of_states = judge_states(*k);
    if (t_.after && is_wrong(states_)) judge_parameter(of_states, reference);
    return std::move(judged_);
  }

 private:
  bool is_wrong(std::size_t k) const { return judged_[k].known && !judged_[k].errors.holds(); }
  std::optional<std::size_t> first_wrong(std::size_t end) const {
    for (std::size_t k = 0; k < end; ++k) {
      if (is_wrong(k)) return k;
    }
    return {};
  }

  bool holds(const StepRule& r, std::size_t k) const {
    if (!step_errors(t_, r, k, Elements::some).holds()) return false;
    const StepErrors errors = step_errors(t_, r, k, Elements::until_wrong);
    left_[k] = errors.ratio;
    return errors.holds();
  }
  // Of which results it makes all that are judged.
  bool makes(const StepRule& r, std::size_t end) const {
    for (std::size_t k = 0; k < end; ++k) {
      if (judged_[k].known && !holds(r, k)) return false;
    }
    return true;
  }

  // The rules of a hypothesis: with short numbers, and with those that fit best.
  std::vector<StepRule> solved(const StepHypothesis& h) const {
    if (h.free.empty()) return {h.rule};
    const auto fit = fit_step(t_, h.rule, h.solved_in, h.free);
    if (!fit) return {};
    StepRule exact = fit->rule;
    for (std::size_t i = 0; i < h.free.size(); ++i) exact.set(h.free[i], fit->numbers[i].value);
    return {fit->rule, exact};
  }

  bool is_proved(const StepHypothesis& h, std::size_t k, std::size_t tried) const {
    if (unexplained_ > most_unexplained && !h.is_known) return false;
    return h.is_known ||
           proves(judged_[k].errors.bits, bits_of_a_number * static_cast<double>(h.free.size()) +
                                              std::log2(static_cast<double>(tried)));
  }

  // The cheapest that makes everything, else all states, else the first that is wrong.
  StepRule judge_states(std::size_t k) {
    if (auto f = unchanged(k); f && k + 1 < judged_.size()) {
      judged_[k].faults = {*f};
      for (std::size_t i = k + 1; i < states_; ++i) {
        if (!is_wrong(i)) continue;
        if (auto same = unchanged(i)) judged_[i].faults = {*same};
      }
      return right_;
    }
    const std::vector<StepHypothesis> all = hypotheses_.of_states(k);
    std::optional<std::pair<const StepHypothesis*, StepRule>> of_all, of_one;
    for (const StepHypothesis& h : all) {
      if (!is_proved(h, k, all.size())) continue;
      for (const StepRule& rule : solved(h)) {
        if (!holds(rule, k)) continue;
        const bool makes_states = makes(rule, states_);
        if (makes_states && makes(rule, judged_.size())) return take(h, rule);
        if (makes_states && !of_all) of_all = std::pair(&h, rule);
        if (!of_one) of_one = std::pair(&h, rule);
        break;
      }
    }
    if (!of_all && of_one) {
      judged_[k].faults = named(*of_one->first, of_one->second, k, true);
      if (const auto next = first_wrong_after(k)) return judge_states(*next);
      return right_;
    }
    if (of_all) return take(*of_all->first, of_all->second);
    ++unexplained_;
    return right_;
  }

  std::optional<std::size_t> first_wrong_after(std::size_t k) const {
    for (std::size_t i = k + 1; i < states_; ++i) {
      if (is_wrong(i) && judged_[i].faults.empty()) return i;
    }
    return {};
  }

  StepRule take(const StepHypothesis& h, const StepRule& rule) {
    remember(h, rule);
    const bool makes_parameter = t_.after && is_wrong(states_) && holds(rule, states_);
    for (std::size_t k = 0; k < judged_.size(); ++k) {
      if (is_wrong(k) && (k < states_ || makes_parameter)) judged_[k].faults = named(h, rule, k);
    }
    return rule;
  }

  void remember(const StepHypothesis& h, const StepRule& rule) {
    if (h.is_known || rule.other) return;
    StepChange change{rule.op, {}, rule.times, rule.lost};
    for (const Attribute& a : rule.op->attributes) {
      const AttributeValue value = value_of(rule.variant, a);
      if (value != value_of(right_.variant, a)) change.attributes[std::string(a.name)] = value;
    }
    // Each parameter has its own decay.
    for (const StepSetting& decay : settings_of(*rule.op, StepNumber::decay))
      change.attributes.erase(std::string(decay.attribute));
    if (std::ranges::find(known_, change) == known_.end()) known_.push_back(std::move(change));
  }

  void judge_parameter(const StepRule& of_states, const StepRule& reference) {
    const std::size_t k = states_;
    JudgedResult& judged = judged_[k];
    const bool has_wrong_state = first_wrong(states_).has_value();
    if (!judged.faults.empty()) return;
    StepRule base = right_;
    base.from_recorded_states = has_wrong_state;
    const auto is_right = [&](const StepRule& rule) {
      const StepErrors errors = step_errors(t_, rule, k);
      if (errors.holds()) judged.errors = errors;
      return errors.holds();
    };
    if (has_wrong_state && is_right(base)) {
      judged.follows = true;
      return;
    }
    // Rounding may not tell it from another form on the reference's side either.
    for (const StepForm& form : forms_in(*right_.op, t_, k)) {
      StepRule rule = base, same = reference;
      rule.set(form);
      same.set(form);
      if (holds(rule, k) && step_errors(s_.reference, same, k, Elements::until_wrong).holds() &&
          is_right(rule))
        return;
    }
    if (auto f = unchanged(k)) {
      judged.faults = {*f};
      return;
    }
    if (has_wrong_state && std::ranges::any_of(judged_, [](auto& j) { return !j.faults.empty(); })) {
      base = of_states;
      base.from_recorded_states = true;
    }
    const std::vector<StepHypothesis> all = hypotheses_.of_parameter(base);
    bool has_tried_states = false;
    for (const StepHypothesis& h : all) {
      if (!h.free.empty() && !h.is_known && !std::exchange(has_tried_states, true)) {
        if (auto f = made_of_old_states(base)) {
          judged.faults = {*f};
          return;
        }
      }
      if (!is_proved(h, k, all.size())) continue;
      for (const StepRule& rule : solved(h)) {
        if (!holds(rule, k)) continue;
        judged.faults = named(h, rule, k);
        remember(h, rule);
        return;
      }
    }
    // What is wrong with the states makes it wrong in a way that no rule tells.
    judged.follows = has_wrong_state;
    if (!has_wrong_state) ++unexplained_;
  }

  std::optional<StepFault> made_of_old_states(const StepRule& base) const {
    if (states_ == 0 || s_.starts) return {};
    StepTensors old = t_;
    for (std::size_t i = 0; i < states_; ++i) old.states[i] = *old.states_before[i];
    StepRule rule = base;
    rule.from_recorded_states = true;
    const StepErrors left = step_errors(old, rule, states_, Elements::until_wrong);
    if (!left.holds()) return {};
    return StepFault{Cause::step_stale, "moments of before",
                     "the update is made of the moments of before the step", left.ratio};
  }

  // Elements that still have the value from before the step: all of them, or a contiguous part.
  std::optional<StepFault> unchanged(std::size_t k) const {
    const TensorSource& after = t_.result(k);
    const TensorSource* before = k == states_          ? &t_.before.value()
                                 : t_.states_before[k] ? &*t_.states_before[k]
                                                       : nullptr;
    // Zeros are what a gradient of zeros leaves, too.
    if (before == nullptr) return {};
    const std::string what = k == states_ ? "the parameter" : std::string(right_.op->step->states[k].before);
    return unchanged_elements(after, *before, what, judged_[k].errors);
  }

  // Of a rule that was tried last.
  // @param alone  the other states are made otherwise
  std::vector<StepFault> named(const StepHypothesis& h, const StepRule& rule, std::size_t k,
                               bool alone = false) const {
    const std::string_view result = alone ? right_.op->step->states[k].after : "";
    return name_mistake({right_, rule, h.of_gradient, std::string(result), left_[k]});
  }

  std::vector<StepChange>& known_;
  std::size_t& unexplained_;
  const ParameterStep& s_;
  const StepTensors& t_;
  const StepRule& right_;
  std::size_t states_;
  StepHypotheses hypotheses_;
  std::vector<JudgedResult> judged_;
  mutable std::map<std::size_t, double> left_;  // error / allowed of each result, of what was tried last
};

std::vector<JudgedResult> StepMistakes::judge(const ParameterStep& s, const StepRule& right,
                                              const StepRule& reference,
                                              const std::vector<OtherGradient>& others) {
  return StepSearch(*this, s, right, others).judge(reference);
}

}  // namespace assay
