#include "assay/compare/causes/optimizer/reference_decay.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "assay/compare/causes/optimizer/step_call.h"
#include "assay/golden/evidence.h"

namespace assay {
namespace {

void set_nearest(StepRule& rule, const ParameterStep& s, std::size_t k, const StepSetting& decay,
                 const Estimate& e, const std::set<double>& numbers) {
  const double nearest =
      *std::ranges::min_element(numbers, {}, [&](double d) { return std::abs(d - e.value); });
  if (nearest == 0 || !(std::abs(nearest - e.value) <= e.reach)) return;
  StepRule other = rule;
  other.set(decay, nearest);
  if (k < s.reference.results() && step_errors(s.reference, other, k, Elements::some).holds())
    rule = std::move(other);
}

}  // namespace

void solve_decays(StepRules& rules, std::size_t k, const StepSetting& decay) {
  std::map<std::string, std::vector<Estimate>> all;
  for (const auto& [s, rule] : rules) {
    if (k >= s->reference.results() || !s->reference.before) continue;
    if (const auto fit = fit_step(s->reference, rule, k, {decay})) all[s->name()].push_back(fit->numbers[0]);
  }
  std::set<double> numbers;
  std::vector<Estimate> hidden;
  for (auto& [s, rule] : rules) {
    const auto own = all.find(s->name());
    if (own == all.end()) continue;
    const Estimate e = pooled(own->second);
    rule.set(decay, short_number(e, e.reach).value_or(e.value));
    // A wide bound hides a decay in a sample that other elements show.
    const bool may_hide = rule.number(decay) == 0 && std::abs(e.value) > improbable * e.sigma;
    if (may_hide && k < s->reference.results() &&
        !step_errors(s->reference, rule, k, Elements::until_wrong).holds())
      rule.set(decay, short_number({e.value, e.sigma}, 0).value_or(e.value));
    numbers.insert(rule.number(decay));
    if (may_hide && rule.number(decay) == 0) hidden.push_back({e.value, e.sigma});
  }
  // Or in all of them, where the gradient's roundings do: an optimizer has a few numbers, and a parameter
  // has the one to which it is nearest.
  if (hidden.empty()) return;
  const Estimate e = pooled(hidden);
  numbers.insert(short_number(e, 0).value_or(e.value));
  for (auto& [s, rule] : rules) {
    const auto own = all.find(s->name());
    if (own != all.end() && rule.number(decay) == 0)
      set_nearest(rule, *s, k, decay, pooled(own->second), numbers);
  }
}

}  // namespace assay
