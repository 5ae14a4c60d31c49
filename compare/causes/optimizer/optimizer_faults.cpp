#include "assay/compare/causes/optimizer/optimizer_faults.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "assay/compare/causes/optimizer/explain_clip.h"
#include "assay/compare/causes/optimizer/left_behind.h"
#include "assay/compare/causes/optimizer/other_gradients.h"
#include "assay/compare/causes/optimizer/other_optimizer.h"
#include "assay/compare/causes/optimizer/reference_rule.h"
#include "assay/compare/causes/optimizer/shared_faults.h"
#include "assay/compare/causes/optimizer/step_call.h"
#include "assay/compare/causes/values/known_sizes.h"
#include "assay/compare/result/trouble.h"

namespace assay {
namespace {

bool differs(const Finding& f) {
  return f.id.phase == Phase::optimizer && f.metrics &&
         (f.metrics->max_abs > 0 || f.metrics->special_mismatch > 0);
}

// What is known of a step as a whole.
struct WholeStep {
  GradientSquares squares;
  KnownNorm norm;
  bool has_recorded_norm = false;
  DType arithmetic = DType::float32;
  double clip = 1;
};

class Faults {
 public:
  Faults(std::vector<Finding>& findings, const std::vector<Pair>& pairs, const std::vector<Pair>& beside,
         const Sides& sides)
      : findings_(findings),
        sides_(sides),
        recorded_(recorded_steps(findings, pairs, beside, sides)),
        // How often ranks count, not what a model is made of: each size more is one more accident.
        sizes_(known_sizes({sides.actual, sides.reference, sides.actual_tensors, sides.reference_tensors})) {}

  StepOrigins find() {
    if (recorded_.steps.empty()) return {};
    find_norms();
    rules_ = reference_rules(recorded_, reference_norms_);
    if (rules_.of.empty()) return {};
    // The largest say most.
    std::ranges::stable_sort(recorded_.steps, {}, [](const ParameterStep& s) {
      return std::pair(s.step, -element_count(s.shape));
    });
    StepMistakes mistakes;
    for (const ParameterStep& s : recorded_.steps) {
      if (!whole_.contains(s.step)) begin_step(s.step);
      judged_.emplace_back();
      const StepRule* rule = rules_.find(s);
      if (rule == nullptr || !s.differs || (steps_matrices(*rule->op) && passes(s))) continue;
      judged_.back() = mistakes.judge(s, right_rule(s, *rule), *rule, other_gradients(s, recorded_, sides_));
    }
    for (const auto& [step, whole] : whole_) explain_clips(step, whole);
    collect();
    shared_.report(findings_, origins_, all_parameters());
    hand_on();
    return std::move(origins_);
  }

 private:
  bool passes(const ParameterStep& s) const {
    return std::ranges::all_of(s.findings,
                               [&](std::size_t i) { return findings_[i].verdict == Verdict::passed; });
  }

  // The recorded number that is the norm of the reference's gradients, whatever it is called.
  void find_norms() {
    for (const auto& [step, gradients] : recorded_.gradients) {
      const GradientSquares squares = gradient_squares(gradients, false, sides_.actual);
      const DType arithmetic = first_of(step).reference.arithmetic;
      const double norm = squares.norm(), error = squares.error(arithmetic);
      const std::vector<StepScalar>& scalars = recorded_.scalars[step];
      const auto recorded = std::ranges::find_if(
          scalars, [&](const StepScalar& s) { return std::abs(s.reference / norm - 1) <= error; });
      if (recorded != scalars.end()) {
        recorded_norms_.emplace(step, *recorded);
        reference_norms_[step] = {recorded->reference, 0, squares.finest};
      } else {
        // As much again for the sum and the quotient that make the coefficient of it.
        reference_norms_[step] = {norm, error + 2 * squares.error_of_storing(arithmetic), squares.finest};
      }
    }
  }

  const ParameterStep& first_of(std::int64_t step) const {
    const auto at = std::ranges::find(recorded_.steps, step, &ParameterStep::step);
    return at == recorded_.steps.end() ? recorded_.steps.front() : *at;
  }

  // The norm comes before what is clipped by it.
  void begin_step(std::int64_t step) {
    WholeStep& whole = whole_[step];
    whole.squares = gradient_squares(recorded_.gradients[step], true, sides_.actual);
    whole.arithmetic = first_of(step).actual.arithmetic;
    const auto scalar = recorded_norms_.find(step);
    whole.has_recorded_norm = scalar != recorded_norms_.end();
    whole.norm = {whole.squares.norm(),
                  whole.squares.error(whole.arithmetic) + whole.squares.error_of_storing(whole.arithmetic),
                  whole.squares.finest};
    if (whole.has_recorded_norm) {
      judge_norm(step, whole, scalar->second);
      whole.norm = {scalar->second.actual, unit_roundoff(whole.arithmetic), whole.squares.finest};
    }
    if (rules_.limit.is_finite()) settle_clip(step, whole);
  }

  // A coefficient that is the right one but for rounding is the program's own. Without the 1e-6 it is that of
  // other frameworks, and no mistake.
  void settle_clip(std::int64_t step, WholeStep& whole) const {
    const ClipLimit& limit = rules_.limit;
    const double norm = whole.norm.value, right = limit.of(norm);
    whole.clip = std::min(1.0, right);
    if (!(right < 1)) return;
    // Those whose gradients show it best, of them the largest.
    std::vector<const ParameterStep*> clipped;
    for (const ParameterStep& s : recorded_.steps) {
      if (s.step == step && rules_.find(s) != nullptr) clipped.push_back(&s);
    }
    std::ranges::stable_sort(
        clipped, {}, [](const ParameterStep* s) { return unit_roundoff(s->actual.gradient.dtype()); });
    constexpr std::size_t enough = 8;
    std::vector<Estimate> all;
    for (const ParameterStep* clipped_step : clipped) {
      if (all.size() == enough) break;
      const ParameterStep& s = *clipped_step;
      const StepRule* rule = rules_.find(s);
      for (const StepSetting& g : settings_of(*rule->op, StepNumber::gradient)) {
        const std::size_t k = result_of(*rule->op, s.actual, g.shows_in);
        if (k >= s.actual.states.size()) continue;
        auto fit = fit_step(s.actual, *rule, k, {g});
        if (!fit) continue;
        if (!whole.has_recorded_norm)
          fit->numbers[0] = as_stored(fit->numbers[0], whole.norm.dtype, s.actual.arithmetic);
        fit->rule.set(g, fit->numbers[0].value);
        if (step_errors(s.actual, fit->rule, k, Elements::some).holds()) all.push_back(fit->numbers[0]);
      }
    }
    const Estimate used = pooled(all);
    for (const double epsilon : limit.epsilons()) {
      const ClipLimit one{limit.max_norm, epsilon};
      // A coefficient is computed in the norm's dtype.
      const bool is_narrow =
          !whole.has_recorded_norm && unit_roundoff(whole.norm.dtype) > unit_roundoff(whole.arithmetic);
      const DType dtype = is_narrow ? whole.norm.dtype : whole.arithmetic;
      const double error = one.error(norm, whole.norm.error, dtype) * one.of(norm);
      if (!(std::abs(used.value - one.of(norm)) <= error + used.reach)) continue;
      whole.clip = whole.has_recorded_norm ? one.of(norm) : used.value;
      return;
    }
  }

  StepRule right_rule(const ParameterStep& s, StepRule rule) const {
    for (const StepSetting& g : settings_of(*rule.op, StepNumber::gradient)) {
      if (rules_.limit.is_finite()) rule.set(g, whole_.at(s.step).clip);
    }
    return rule;
  }

  // The recorded norm against that of the recorded gradients.
  void judge_norm(std::int64_t step, const WholeStep& whole, const StepScalar& scalar) {
    if (!std::ranges::all_of(recorded_.gradients[step], &ReducedGradient::has_one_value)) return;
    const double own =
        std::abs(scalar.actual / whole.squares.norm() - 1) / whole.squares.error(whole.arithmetic);
    if (own <= 1) return;
    const double right = whole.squares.norm(), norm = scalar.actual;
    const auto why = explain_norm(whole.squares, norm, whole.squares.error(whole.arithmetic), sizes_);
    const std::string text = why ? why->text : fmt::format("{:.6g} times", norm / right);
    StepFault f{
        Cause::norm,
        "norm " + (why ? why->text : fmt::format("x {:.4g}", norm / right)),
        fmt::format("the norm is {:.6g}, that of the recorded gradients {:.6g}: {}", norm, right, text),
        0,
        norm,
        right};
    if (why) f.evidence = why->evidence;
    origins_[scalar.finding] = {own, "the norm of its own recorded gradients", {}};
    shared_.add(f, "", step, scalar.finding);
  }

  void explain_clips(std::int64_t step, const WholeStep& whole) {
    std::vector<ClipFault> clips;
    for (std::size_t i = 0; i < judged_.size(); ++i) {
      const ParameterStep& s = recorded_.steps[i];
      for (std::size_t k = 0; k < judged_[i].size() && s.step == step; ++k) {
        for (StepFault& f : judged_[i][k].faults) {
          if (f.key == "coefficient") clips.push_back({s.name(), &f, error_of_clip(s, k)});
        }
      }
    }
    explain_clip(clips, rules_.limit,
                 {whole.norm.value, whole.norm.error, whole.has_recorded_norm, whole.clip, whole.squares,
                  whole.arithmetic, sizes_});
  }

  double error_of_clip(const ParameterStep& s, std::size_t k) const {
    const StepRule& rule = *rules_.find(s);
    const auto fit = fit_step(s.actual, rule, k, settings_of(*rule.op, StepNumber::gradient));
    return fit && fit->numbers[0].value != 0 ? std::abs(fit->numbers[0].reach / fit->numbers[0].value) : 0;
  }

  void collect() {
    for (std::size_t i = 0; i < judged_.size(); ++i) {
      const ParameterStep& s = recorded_.steps[i];
      for (std::size_t k = 0; k < judged_[i].size(); ++k) {
        const JudgedResult& judged = judged_[i][k];
        if (!judged.known) continue;
        origins_[s.findings[k]] = {judged.errors.ratio, how(s), {}};
        for (const StepFault& f : judged.faults) shared_.add(f, s.name(), s.step, s.findings[k]);
      }
    }
  }

  // What was made rightly of a wrong state is off by the state's mistake.
  void hand_on() {
    for (std::size_t i = 0; i < judged_.size(); ++i) {
      const ParameterStep& s = recorded_.steps[i];
      std::optional<std::size_t> root;
      for (std::size_t k = 0; k < judged_[i].size(); ++k) {
        const JudgedResult& judged = judged_[i][k];
        if (!judged.known) continue;
        StepOrigin& own = origins_.at(s.findings[k]);
        // A mistake, or what none explains.
        const bool is_root = !judged.faults.empty() || !(judged.follows || judged.errors.ratio <= 1);
        if (is_root && !root) root = own.root ? own.root : s.findings[k];
        if (!is_root && root && (judged.follows || judged.errors.holds())) own.root = root;
      }
    }
  }

  std::string how(const ParameterStep& s) const {
    const StepRule& rule = *rules_.find(s);
    const std::string numbers = differences(*rule.op, rule.variant, {});
    return fmt::format("the reference's {}{} on its own recorded inputs", rule.op->name,
                       numbers.empty() ? "" : " (" + numbers + ")");
  }

  std::vector<NamedShape> all_parameters() const {
    std::vector<NamedShape> all;
    for (const ParameterStep& s : recorded_.steps) {
      const bool has_gradient = s.ops.front()->recorded_as.empty();  // not the bias of a router
      if (s.step == recorded_.steps.front().step && has_gradient) all.push_back({s.name(), s.shape});
    }
    return all;
  }

  std::vector<Finding>& findings_;
  const Sides& sides_;
  RecordedSteps recorded_;
  std::map<std::int64_t, KnownNorm> reference_norms_;
  std::map<std::int64_t, StepScalar> recorded_norms_;
  std::vector<KnownSize> sizes_;
  ReferenceRules rules_;
  std::map<std::int64_t, WholeStep> whole_;
  std::vector<std::vector<JudgedResult>> judged_;  // of recorded_.steps
  SharedFaults shared_;
  StepOrigins origins_;
};

}  // namespace

StepOrigins find_optimizer_faults(std::vector<Finding>& findings, const std::vector<Pair>& pairs,
                                  const std::vector<Pair>& beside, const Sides& sides) {
  // A step that has the reference's bits is the reference's step.
  const auto first = std::ranges::find_if(findings, differs);
  if (first == findings.end()) return {};
  if (const auto other = other_optimizer(sides)) return explain_other_optimizer(findings, pairs, *other);
  StepOrigins origins;
  // The verdicts of the comparison stand without a judgement of the steps.
  if (const auto trouble = trouble_in([&] { origins = Faults(findings, pairs, beside, sides).find(); }))
    first->notes.push_back(fmt::format("the optimizer's steps were not judged: {}", *trouble));
  find_left_behind(findings, pairs, sides, origins);
  return origins;
}

}  // namespace assay
