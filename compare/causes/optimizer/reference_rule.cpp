#include "assay/compare/causes/optimizer/reference_rule.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <tuple>

#include "assay/compare/causes/optimizer/reference_decay.h"
#include "assay/compare/causes/optimizer/step_call.h"
#include "assay/golden/evidence.h"

namespace assay {
namespace {

// Numbers that all parameters share are solved from the largest.
constexpr std::size_t most_solved = 6;

// The parameters whose states have the same names: one optimizer steps them.
class Family {
 public:
  Family(std::vector<const ParameterStep*> steps, const std::map<std::int64_t, KnownNorm>& norms)
      : steps_(std::move(steps)), norms_(norms) {
    std::map<std::int64_t, std::vector<const ParameterStep*>> by_step;
    for (const ParameterStep* s : steps_) by_step[s->step].push_back(s);
    for (auto& [step, all] : by_step) {
      // Matrices that are stepped as a whole cost more than they say, and a scale by their shape shows in
      // several of them.
      const bool has_whole =
          std::ranges::any_of(all.front()->ops, [](const Operator* op) { return steps_matrices(*op); });
      std::ranges::stable_sort(all, std::greater(), [&](const ParameterStep* s) {
        const std::int64_t size = element_count(s->shape);
        return std::tuple(s->reference.results(), has_whole ? -size : size, s->shape);
      });
      if (has_whole) {
        const auto rest = std::ranges::unique(all, {}, &ParameterStep::shape);
        all.erase(rest.begin(), rest.end());
      }
      const std::size_t most = has_whole ? most_solved / 2 : most_solved;
      add_first(most, all, largest_);
      std::ranges::stable_sort(
          all, {}, [](const ParameterStep* s) { return unit_roundoff(s->reference.gradient.dtype()); });
      add_first(most, all, finest_);
    }
  }

  struct Found {
    StepRules rules;
    ClipLimit limit;
    std::size_t reproduced = 0;
    double roughness = 0;  ///< how little its numbers look like a program's own

    bool is_better(const Found& other) const {
      return reproduced != other.reproduced ? reproduced > other.reproduced : roughness < other.roughness;
    }
    bool is_certain(std::size_t all) const { return reproduced == all && roughness == 0; }
  };

  std::optional<Found> find() const {
    std::optional<Found> best;
    for (const Operator* op : steps_.front()->ops) {
      Found f;
      for (const ParameterStep* s : steps_) {
        StepRule rule = StepRule::of(*op);
        for (const StepSetting& count : settings_of(*op, StepNumber::count))
          rule.set(count, static_cast<double>(s->step - steps_.front()->step));
        f.rules[s] = std::move(rule);
      }
      for (std::size_t k = 0; k < steps_.front()->reference.states.size(); ++k) find_state(*op, f, k);
      find_parameter(*op, f);
      if (f.reproduced > 0 && (!best || f.is_better(*best))) best = std::move(f);
      if (best && best->is_certain(results())) break;
    }
    return best;
  }

 private:
  using List = std::vector<const ParameterStep*>;
  static void add_first(std::size_t most, const List& all, List& to) {
    to.insert(to.end(), all.begin(), all.begin() + static_cast<std::ptrdiff_t>(std::min(most, all.size())));
  }

  // How many results of the largest parameters there are: those of number k, or all.
  std::size_t results(std::optional<std::size_t> k = {}) const {
    std::size_t count = 0;
    for (const ParameterStep* s : largest_)
      count += !k ? s->reference.results() : *k < s->reference.results() ? 1 : 0;
    return count;
  }

  static std::optional<StepSetting> setting(const Operator& op, const StepTensors& t, std::size_t result,
                                            StepNumber kind) {
    const std::vector<StepSetting> all = settings_in(op, t, result, kind);
    return all.empty() ? std::nullopt : std::optional(all.front());
  }

  static void set_all(Found& f, const StepSetting& s, double number) {
    for (auto& [step, rule] : f.rules) rule.set(s, number);
  }

  // The first of the numbers that are solved of a result at each step, pooled over parameters.
  // @param more  tried beside, where these alone do not do
  std::map<std::int64_t, Estimate> pooled_fits(const List& parameters, const Found& f, std::size_t result,
                                               const std::vector<StepSetting>& unknown,
                                               const std::optional<StepSetting>& more,
                                               bool with_first) const {
    std::map<std::int64_t, std::vector<Estimate>> all;
    for (const ParameterStep* s : parameters) {
      if ((s->starts && !with_first) || result >= s->reference.results()) continue;
      auto fit = fit_step(s->reference, f.rules.at(s), result, unknown);
      if (more && (!fit || !step_errors(s->reference, fit->rule, result, Elements::some).holds())) {
        std::vector<StepSetting> both = unknown;
        both.push_back(*more);
        if (auto wider = fit_step(s->reference, f.rules.at(s), result, both)) fit = std::move(wider);
      }
      if (fit) all[s->step].push_back(fit->numbers.front());
    }
    std::map<std::int64_t, Estimate> found;
    for (const auto& [step, numbers] : all) found[step] = pooled(numbers);
    return found;
  }

  // s' = kept s + (1 - kept) gradient g: of the first step the product alone.
  void find_state(const Operator& op, Found& f, std::size_t k) const {
    const StepTensors& t = steps_.front()->reference;
    const auto kept = setting(op, t, k, StepNumber::kept), scale = setting(op, t, k, StepNumber::gradient),
               decay = setting(op, t, k, StepNumber::decay);
    std::optional<Found> best;
    for (const StepForm& form : forms_in(op, t, k)) {
      Found with = f;
      for (auto& [s, rule] : with.rules) rule.set(form);
      for (const double number : kept ? numbers_seen(op, *kept) : std::vector<double>{0}) {
        Found one = with;
        if (kept) set_all(one, *kept, number);
        const bool is_solved = kept && solve_kept(one, k, *kept, scale, decay);
        if (scale) solve_scale(one, k, *scale, decay);
        if (decay) solve_decays(one.rules, k, *decay);
        count_reproduced(one, k);
        if (!best || one.is_better(*best)) best = std::move(one);
        if (is_solved || best->is_certain(f.reproduced + results(k))) break;
      }
      if (best->is_certain(f.reproduced + results(k))) break;
    }
    if (best) f = std::move(*best);
  }

  bool solve_kept(Found& f, std::size_t k, const StepSetting& kept, const std::optional<StepSetting>& scale,
                  const std::optional<StepSetting>& decay) const {
    std::vector<StepSetting> unknown = {kept};
    if (scale) unknown.push_back(*scale);
    std::vector<Estimate> all;
    for (const auto& [step, own] : pooled_fits(largest_, f, k, unknown, decay, !scale)) all.push_back(own);
    const Estimate number = pooled(all);
    if (!std::isfinite(number.sigma)) return false;
    set_all(f, kept, short_number(number, number.reach).value_or(number.value));
    return true;
  }

  // Of gradients that show it best: what clips a few in float32 among many in bfloat16 is a float32 number.
  void solve_scale(Found& f, std::size_t k, const StepSetting& scale,
                   const std::optional<StepSetting>& decay) const {
    std::map<std::int64_t, Estimate> by_step = pooled_fits(finest_, f, k, {scale}, decay, true);
    if (finest_ != largest_) by_step.merge(pooled_fits(largest_, f, k, {scale}, decay, true));
    f.limit = limit_of(by_step, f);
    for (auto& [s, rule] : f.rules) {
      if (by_step.contains(s->step)) rule.set(scale, by_step.at(s->step).value);
    }
  }

  // c = 1, or max_norm / (norm + 1e-6), or / norm: a coefficient that is that of the norm is taken from
  // there, for it has no error of a fit.
  ClipLimit limit_of(std::map<std::int64_t, Estimate>& by_step, Found& f) const {
    ClipLimit limit;
    std::set<double> limits;
    for (auto& [step, c] : by_step) {
      if (std::abs(c.value - 1) <= c.reach + improbable * c.sigma) {
        c = {1, 0};
        continue;
      }
      const auto norm = norms_.find(step);
      const auto own = norm != norms_.end() && c.value > 0 ? limit_behind(c, norm->second) : std::nullopt;
      limits.insert(own ? own->max_norm : 0);
      if (own) {
        limit.epsilon = own->epsilon;
        c = norm->second.error == 0 ? Estimate{own->of(norm->second.value), 0}
                                    : as_stored(c, norm->second.dtype, steps_.front()->reference.arithmetic);
      }
      // Nothing clips to more than there was, and a limit is a short number.
      f.roughness += (own ? 0 : 1) + (c.value > 1 ? 1 : 0);
    }
    if (limits.empty()) limit.max_norm = infinity;
    if (limits.size() == 1) limit.max_norm = *limits.begin();
    return limit;
  }

  void count_reproduced(Found& f, std::size_t k) const {
    for (const ParameterStep* s : largest_) {
      if (k < s->reference.results() && step_errors(s->reference, f.rules.at(s), k, Elements::some).holds())
        ++f.reproduced;
    }
  }

  // Learning rates should be short, and the same at each step.
  void find_parameter(const Operator& op, Found& f) const {
    const StepTensors& t = largest_.front()->reference;
    if (!t.after) return;
    const std::size_t k = t.states.size();
    const auto rate = setting(op, t, k, StepNumber::rate), decay = setting(op, t, k, StepNumber::decay);
    if (!rate) return;
    std::optional<Found> best;
    for (const StepForm& form : forms_in(op, t, k)) {
      Found one = f;
      for (auto& [s, rule] : one.rules) rule.set(form);
      solve_rate(one, k, *rate, decay);
      count_reproduced(one, k);
      if (!best || one.is_better(*best)) best = std::move(one);
      if (best->is_certain(f.reproduced + results(k))) break;
    }
    if (best->reproduced == f.reproduced) solve_epsilon(op, *best, k, *rate, decay);
    if (decay) solve_decays(best->rules, k, *decay);
    f = std::move(*best);
  }

  void solve_rate(Found& f, std::size_t k, const StepSetting& rate,
                  const std::optional<StepSetting>& decay) const {
    double last = 0;
    std::vector<StepSetting> unknown = {rate};
    if (decay) unknown.push_back(*decay);
    for (const auto& [step, e] : pooled_fits(largest_, f, k, unknown, {}, true)) {
      const auto brief = short_number(e, e.reach);
      const double number = brief.value_or(e.value);
      f.roughness += brief ? 0 : 1;
      if (last != 0) f.roughness += std::abs(std::log(std::abs(number / last)));
      last = number;
      for (auto& [s, rule] : f.rules) {
        if (s->step == step) rule.set(rate, number);
      }
    }
    for (const ParameterStep* s : largest_) {
      if (!decay || k >= s->reference.results()) continue;
      if (const auto fit = fit_step(s->reference, f.rules.at(s), k, {*decay}))
        f.rules.at(s).set(*decay, fit->rule.number(*decay));
    }
  }

  // One that nobody was seen with.
  void solve_epsilon(const Operator& op, Found& f, std::size_t k, const StepSetting& rate,
                     const std::optional<StepSetting>& decay) const {
    for (const StepSetting& epsilon : settings_of(op, StepNumber::epsilon)) {
      std::vector<Estimate> all;
      for (const auto& [step, own] : pooled_fits(largest_, f, k, {epsilon, rate}, decay, true))
        all.push_back(own);
      const Estimate e = pooled(all);
      if (!std::isfinite(e.sigma) || !(e.value > e.reach)) continue;
      set_all(f, epsilon, short_number(e, e.reach).value_or(e.value));
      f.roughness = 0;
      solve_rate(f, k, rate, decay);
      count_reproduced(f, k);
    }
  }

  List steps_;
  const std::map<std::int64_t, KnownNorm>& norms_;
  List largest_;  // of each step
  List finest_;   // the same, of gradients of the finest dtype first
};

}  // namespace

ReferenceRules reference_rules(const RecordedSteps& recorded,
                               const std::map<std::int64_t, KnownNorm>& norms) {
  std::map<std::pair<std::vector<const Operator*>, std::size_t>, std::vector<const ParameterStep*>> families;
  for (const ParameterStep& s : recorded.steps) families[{s.ops, s.reference.states.size()}].push_back(&s);
  ReferenceRules rules;
  for (const auto& [ops, steps] : families) {
    const auto found = Family(steps, norms).find();
    if (!found) continue;
    if (found->limit.is_known() && !rules.limit.is_known()) rules.limit = found->limit;
    for (const auto& [s, rule] : found->rules) rules.of[{s->name(), s->step}] = rule;
  }
  return rules;
}

}  // namespace assay
