#include "assay/compare/causes/optimizer/step_hypotheses.h"

#include <algorithm>

namespace assay {

StepRule StepHypotheses::changed(const StepChange& c) const {
  StepRule rule = as(*c.op);
  rule.set(c.attributes);
  rule.times = c.times;
  rule.lost = c.lost;
  return rule;
}

// The right rule in the words of another operator.
StepRule StepHypotheses::as(const Operator& op) const {
  return StepRule::of(op, right_.variant.attributes);
}

std::vector<StepHypothesis> StepHypotheses::of_states(std::size_t k) const {
  std::vector<StepHypothesis> all;
  for (const StepChange& c : known_) all.push_back({changed(c), {}, k, true});
  const auto solve = [&](const StepRule& rule, const std::vector<StepSetting>& settings, std::size_t in) {
    for (const StepSetting& s : settings) all.push_back({rule, {s}, in});
  };
  StepRule rule = right_;
  for (const StepSetting& g : settings_of(*right_.op, StepNumber::gradient)) {
    for (const double other : {-right_.number(g), 1., 0.}) {
      rule.set(g, other);
      if (other != right_.number(g)) all.push_back({rule});
    }
  }
  solve(right_, settings_of(*right_.op, StepNumber::gradient), k);
  solve(right_, settings_in(*right_.op, t_, k, StepNumber::kept), k);
  rule = right_;
  rule.times = 2;
  all.push_back({rule});
  for (const StepSetting& count : settings_of(*right_.op, StepNumber::count)) {
    rule.set(count, 2 * rule.number(count));  // it was so at each step before
    all.push_back({rule});
  }
  std::set<std::size_t> every;
  for (std::size_t i = 0; i < states_; ++i) {
    rule = right_;
    rule.lost = {i};
    if (t_.states_before[i]) all.push_back({rule});
    if (t_.states_before[i]) every.insert(i);
  }
  rule.lost = every;
  if (every.size() > 1) all.push_back({rule});
  for (const StepForm& form : forms_in(*right_.op, t_, k)) {
    rule = right_;
    rule.set(form);
    if (!is_same(rule.variant, right_.variant)) all.push_back({rule});
  }
  for (const Operator* op : s_.ops) {
    rule = as(*op);
    if (op != right_.op) all.push_back({rule});
    if (t_.before) solve(rule, settings_in(*op, t_, k, StepNumber::decay), k);
    for (const StepSetting& decay : settings_in(*right_.op, t_, k, StepNumber::decay)) {
      rule.set(decay, 0);
      all.push_back({rule});
    }
  }
  // In its place rather than added: a sum of two shares is also one of them less than the whole.
  for (const bool adds : {false, true}) {
    for (const OtherGradient& other : others_) {
      rule = right_;
      rule.other = other.tensor;
      rule.adds = adds;
      all.push_back({rule, {}, k, false, other.text});
      if (!adds) {
        for (const StepSetting& g : settings_of(*right_.op, StepNumber::gradient))
          all.push_back({rule, {g}, k, false, other.text});
      }
    }
  }
  return all;
}

std::vector<StepHypothesis> StepHypotheses::of_parameter(const StepRule& base) const {
  const std::size_t k = states_;
  const Operator& op = *base.op;
  const auto rate = settings_in(op, t_, k, StepNumber::rate),
             decay = settings_in(op, t_, k, StepNumber::decay),
             epsilon = settings_in(op, t_, k, StepNumber::epsilon);
  std::vector<StepRule> none = {base}, one, two;
  for (const StepForm& form : forms_in(op, t_, k)) {
    StepRule rule = base;
    rule.set(form);
    const std::int64_t changes = std::ranges::count_if(op.attributes, [&](const Attribute& a) {
      return value_of(rule.variant, a) != value_of(base.variant, a);
    });
    if (changes == 1) one.push_back(rule);
    if (changes == 2) two.push_back(rule);
  }
  for (const Seen& row : op.mistaken) {
    StepRule rule = base;
    rule.set(row.attribute, parse_attribute(row.value));
    one.push_back(rule);
  }
  for (const StepSetting& count : settings_in(op, t_, k, StepNumber::count)) {
    const double right = base.number(count);
    for (const double other : {0., right - 1, right + 1, 2 * right, 2 * right + 1}) {
      StepRule rule = base;
      rule.set(count, other);
      if (other >= 0 && other != right) one.push_back(rule);
    }
  }
  for (const StepSetting& length : rate) {
    StepRule rule = base;
    rule.set(length, 2 * base.number(length));
    one.push_back(rule);
    rule.set(length, -base.number(length));
    for (const StepSetting& s : decay) rule.set(s, -base.number(s));
    one.push_back(rule);
  }
  std::vector<StepHypothesis> all;
  const auto add = [&](const std::vector<StepRule>& rules, std::vector<StepSetting> free,
                       const std::vector<StepSetting>& more = {}) {
    free.insert(free.end(), more.begin(), more.end());
    for (const StepRule& rule : rules) all.push_back({rule, free, k});
  };
  for (const StepChange& c : known_) {
    if (c.op != base.op || c.times != 1 || !c.lost.empty()) continue;
    StepRule rule = base;
    rule.set(c.attributes);
    all.push_back({rule, {}, k, true});
    if (!decay.empty()) all.push_back({rule, decay, k, true});
  }
  if (base.from_recorded_states) {  // a second mistake beside the first
    add(none, decay);
    add(none, rate);
    return all;
  }
  add(one, {});
  add(none, decay);
  add(none, rate);
  add(none, epsilon);
  add(two, {});
  if (!decay.empty()) {
    add(none, rate, decay);
    add(one, decay);
  }
  add(one, epsilon);
  add(one, rate);
  if (!decay.empty()) add(two, decay);
  if (!decay.empty()) add(one, epsilon, decay);
  std::erase_if(
      all, [&](const StepHypothesis& h) { return h.free.empty() && is_same(h.rule.variant, base.variant); });
  return all;
}

}  // namespace assay
