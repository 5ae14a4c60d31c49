#include "assay/compare/causes/optimizer/reference_rule.h"

#include <algorithm>
#include <cmath>
#include <tuple>

#include "assay/compare/causes/optimizer/moment_fit.h"
#include "assay/golden/evidence.h"

namespace assay {
namespace {

using Stage = ReferenceRule::Stage;

// What the steps of all parameters share is fitted on each and pooled.
class Inference {
 public:
  explicit Inference(const RecordedSteps& recorded) : recorded_(recorded) {}

  std::optional<ReferenceRule> find() {
    if (recorded_.steps.empty()) return {};
    const std::int64_t first = recorded_.steps.front().step;
    rule_.before_first = first - 1;
    if (!find_first_moment() || !find_second_moment()) return {};
    find_update();
    if (rule_.reproduced.empty()) return {};
    return rule_;
  }

 private:
  // m' = b1 m + (1 - b1) (c g + l2 p): of the first step the product alone.
  bool find_first_moment() {
    std::vector<Estimate> betas;
    std::map<std::int64_t, std::vector<Estimate>> gains, l2_gains;
    std::vector<std::pair<const ParameterStep*, MomentFit>> fits;
    for (const ParameterStep& s : recorded_.steps) {
      const auto fit = fit_first_moment(s.reference);
      if (!fit) continue;
      if (!s.reference.starts) betas.push_back(fit->kept);
      gains[s.step].push_back(fit->gain);
      fits.emplace_back(&s, *fit);
    }
    if (fits.empty()) return false;
    const double u = recorded_.steps.front().reference.u;
    std::map<std::int64_t, double> gain;
    for (const auto& [step, all] : gains) gain[step] = pooled(all).value;
    if (!betas.empty()) {
      const Estimate kept = pooled(betas);
      rule_.rule.beta1 = short_number(kept, 4 * u).value_or(kept.value);
    } else {
      rule_.rule.beta1 = likely_beta1(gain);
    }
    if (!(rule_.rule.beta1 >= 0 && rule_.rule.beta1 < 1)) return false;
    for (const auto& [step, product] : gain) rule_.clip[step] = product / (1 - rule_.rule.beta1);
    find_max_norm();
    for (const auto& [s, fit] : fits) {
      if (fit.l2_gain.value != 0) rule_.l2.try_emplace(s->name(), fit.l2_gain.value / (1 - rule_.rule.beta1));
    }
    shorten_all(rule_.l2);
    for (const ParameterStep& s : recorded_.steps) {
      if (first_moment_errors(s.reference, rule_.rule, used(s)).holds())
        rule_.reproduced.insert({s.name(), s.step, Stage::first});
    }
    return true;
  }

  // Of one step only (1 - b1) c shows: the usual ones first, by which c is 1 or the max_norm behind it short.
  double likely_beta1(const std::map<std::int64_t, double>& gain) const {
    constexpr double usual[] = {0.9, 0.95, 0.8, 0.85, 0.99, 0.5};
    const double u = recorded_.steps.front().reference.u;
    for (const double beta : usual) {
      const auto [step, product] = *gain.begin();
      const double c = product / (1 - beta), relative = 8 * u + error_of_rest(beta, u);
      const auto norm = recorded_.grad_norms.find(step);
      const bool is_one = std::abs(c - 1) <= relative;
      const bool clips =
          c < 1 && norm != recorded_.grad_norms.end() &&
          short_number({c * *norm->second.reference, 0}, relative * c * *norm->second.reference);
      if (is_one || clips) return beta;
    }
    return usual[0];
  }

  // c = max_norm / (norm + 1e-6), or / norm. A coefficient that is that of the recorded norm is taken from
  // there: it has no error of a fit.
  void find_max_norm() {
    rule_.max_norm = 0;
    bool clips = false, known = true;
    std::vector<double> of_steps;
    for (auto& [step, c] : rule_.clip) {
      const double u = recorded_.steps.front().reference.u;
      const double relative = 8 * u + error_of_rest(rule_.rule.beta1, u);
      if (std::abs(c - 1) <= relative) {
        c = 1;
        continue;
      }
      clips = true;
      const auto norm = recorded_.grad_norms.find(step);
      if (norm == recorded_.grad_norms.end() || !(c < 1)) {
        known = false;
        continue;
      }
      const double n = *norm->second.reference;
      const auto max_norm = short_number({c * (n + 1e-6), 0}, 2 * relative * c * n + c * 1e-6);
      known = known && max_norm.has_value();
      if (!max_norm) continue;
      of_steps.push_back(*max_norm);
      const double with = *max_norm / (n + 1e-6), without = *max_norm / n;
      rule_.clip_epsilon = std::abs(with - c) <= std::abs(without - c) ? 1e-6 : 0;
      c = rule_.clip_epsilon > 0 ? with : without;
    }
    if (!clips) rule_.max_norm = HUGE_VAL;
    if (known && !of_steps.empty() &&
        std::ranges::adjacent_find(of_steps, std::not_equal_to<>()) == of_steps.end())
      rule_.max_norm = of_steps.front();
  }

  UsedGradient used(const ParameterStep& s) const { return {rule_.clip.at(s.step), rule_.l2_of(s.name())}; }

  bool find_second_moment() {
    std::vector<Estimate> betas;
    for (const ParameterStep& s : recorded_.steps) {
      if (!rule_.reproduces(s, Stage::first)) continue;
      const auto fit = fit_second_moment(s.reference, used(s));
      if (!fit) continue;
      if (!s.reference.starts) betas.push_back(fit->kept);
      betas.push_back(fit->gain.scaled(-1, 1));
    }
    const Estimate kept = pooled(betas);
    if (!std::isfinite(kept.sigma)) return false;
    const double u = recorded_.steps.front().reference.u;
    rule_.rule.beta2 = short_number(kept, 4 * u).value_or(kept.value);
    if (!(rule_.rule.beta2 >= 0 && rule_.rule.beta2 < 1)) return false;
    for (const ParameterStep& s : recorded_.steps) {
      if (rule_.reproduces(s, Stage::first) && second_moment_errors(s.reference, rule_.rule, used(s)).holds())
        rule_.reproduced.insert({s.name(), s.step, Stage::second});
    }
    return true;
  }

  static void shorten_all(std::map<std::string, double>& decays) {
    std::vector<double> shorts;
    for (auto& [name, decay] : decays) {
      constexpr double relative = 1e-4;  // of a fit on the few elements of a small parameter
      decay = short_number({decay, 0}, relative * std::abs(decay)).value_or(decay);
    }
  }

  struct Updates {
    std::map<std::int64_t, Estimate> rate, floor;
  };

  // Each parameter's rate and floor; the floor shows where v' is small.
  Updates fit_updates() const {
    std::map<std::int64_t, std::vector<Estimate>> rates, floors;
    for (const ParameterStep& s : recorded_.steps) {
      if (!s.reference.before) continue;
      const auto fit = fit_free_update(s.reference);
      if (!fit) continue;
      rates[s.step].push_back(fit->rate);
      floors[s.step].push_back(fit->floor);
    }
    Updates found;
    for (const auto& [step, all] : rates) found.rate[step] = pooled(all);
    for (const auto& [step, all] : floors) found.floor[step] = pooled(all);
    return found;
  }

  // With the bias corrected or not, the learning rates should be short, or the same.
  void find_update() {
    const Updates fitted = fit_updates();
    if (fitted.rate.empty()) return;
    std::optional<ReferenceRule> best;
    for (const auto& [corrects, place] : {std::pair(true, EpsilonPlace::outside),
                                          {false, EpsilonPlace::outside},
                                          {true, EpsilonPlace::hat},
                                          {true, EpsilonPlace::inside}}) {
      for (const double epsilon : epsilons(fitted, corrects, place)) {
        ReferenceRule candidate = rule_;
        candidate.rule.corrects = corrects;
        candidate.rule.place = place;
        candidate.rule.epsilon = epsilon;
        const double roughness = complete(candidate);
        if (best && candidate.reproduced.size() == best->reproduced.size() &&
            corrects == best->rule.corrects && candidate.lr == best->lr &&
            candidate.rule.beta1 == best->rule.beta1) {
          if (!(best->rule == candidate.rule)) best->equivalent_rules.push_back(candidate.rule);
          continue;
        }
        if (best && (candidate.reproduced.size() < best->reproduced.size() ||
                     (candidate.reproduced.size() == best->reproduced.size() && roughness >= roughness_)))
          continue;
        best = std::move(candidate);
        roughness_ = roughness;
      }
    }
    if (best) rule_ = std::move(*best);
  }

  std::vector<double> epsilons(const Updates& fitted, bool corrects, EpsilonPlace place) const {
    constexpr double usual[] = {1e-8, 1e-6, 1e-15, 1e-5, 1e-10, 1e-12, 1e-7, 1e-4, 1e-16};
    if (place == EpsilonPlace::inside) return {std::begin(usual), std::end(usual)};
    AdamRule unit = rule_.rule;
    unit.corrects = corrects;
    unit.place = place;
    unit.epsilon = 1;
    std::vector<Estimate> all;
    for (const auto& [step, floor] : fitted.floor) {
      all.push_back(floor.scaled(1 / unit.floor(rule_.t(step))));
    }
    const Estimate epsilon = pooled(all);
    constexpr double relative = 1e-2;  // a fit of small elements, whose rounding is no noise
    if (!(std::abs(epsilon.value) > improbable * epsilon.sigma)) return {std::begin(usual), std::end(usual)};
    std::vector<double> found;
    if (const auto brief = short_number(epsilon, relative * std::abs(epsilon.value))) found.push_back(*brief);
    found.push_back(epsilon.value);
    return found;
  }

  // Learning rates and decays under these moments' rule; how little they look like a program's own numbers.
  double complete(ReferenceRule& r) const {
    std::map<std::int64_t, std::vector<Estimate>> rates;
    std::map<std::pair<std::string, std::int64_t>, Estimate> lost;
    for (const ParameterStep& s : recorded_.steps) {
      if (!s.reference.before) continue;
      UpdateForm form = {1, 0, r.rule.floor(r.t(s.step)), r.rule.place == EpsilonPlace::inside};
      const auto fit = fit_update(s.reference, form);
      if (!fit) continue;
      rates[s.step].push_back(fit->rate);
      lost[{s.name(), s.step}] = fit->kept.scaled(-1, 1);
    }
    double roughness = 0, last = 0;
    for (const auto& [step, all] : rates) {
      const double scale = r.rule.rate(r.t(step));
      const Estimate rate = pooled(all);
      const Estimate lr = rate.scaled(1 / scale);
      const double u = recorded_.steps.front().reference.u;
      const double relative = 8 * u + error_of_correction(r.rule.beta1, r.t(step), u) +
                              error_of_correction(r.rule.beta2, r.t(step), u);
      const auto brief = short_number(lr, relative * lr.value);
      r.lr[step] = brief.value_or(lr.value);
      roughness += brief ? 0 : 1;
      if (last != 0) roughness += std::abs(std::log(r.lr[step] / last));
      last = r.lr[step];
    }
    std::map<std::string, std::vector<Estimate>> decays;
    for (const auto& [key, e] : lost) {
      decays[key.first].push_back(e.scaled(1 / r.lr.at(key.second)));
    }
    for (const auto& [name, all] : decays) {
      const Estimate decay = pooled(all);
      if (!(std::abs(decay.value) > improbable * decay.sigma)) continue;
      r.decay[name] = decay.value;
    }
    settle(r);
    for (const ParameterStep& s : recorded_.steps) {
      if (!s.reference.before || !r.lr.contains(s.step)) continue;
      if (update_errors(s.reference, r.rule, r.t(s.step), r.update_form(s)).holds())
        r.reproduced.insert({s.name(), s.step, Stage::update});
    }
    return roughness;
  }

  // A decay is a short number, as far as the rounding of 1 - lr decay lets it show.
  void settle(ReferenceRule& r) const {
    double lr = 0;
    for (const auto& [step, rate] : r.lr) lr = std::max(lr, rate);
    const double slack = 2 * recorded_.steps.front().reference.u / lr;
    constexpr double relative = 1e-3;  // of fits on few elements
    for (auto& [name, decay] : r.decay)
      decay = short_number({decay, 0}, slack + relative * std::abs(decay)).value_or(decay);
  }

  const RecordedSteps& recorded_;
  ReferenceRule rule_;
  double roughness_ = 0;
};

}  // namespace

double ReferenceRule::decay_of(const std::string& name) const {
  const auto at = decay.find(name);
  return at == decay.end() ? 0 : at->second;
}

double ReferenceRule::l2_of(const std::string& name) const {
  const auto at = l2.find(name);
  return at == l2.end() ? 0 : at->second;
}

UpdateForm ReferenceRule::update_form(const ParameterStep& s) const {
  const double rate = lr.at(s.step);
  return {1 - rate * decay_of(s.name()), rate * rule.rate(t(s.step)), rule.floor(t(s.step)),
          rule.place == EpsilonPlace::inside};
}

std::optional<ReferenceRule> reference_rule(const RecordedSteps& recorded) {
  return Inference(recorded).find();
}

}  // namespace assay
