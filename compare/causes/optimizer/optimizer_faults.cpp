#include "assay/compare/causes/optimizer/optimizer_faults.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "assay/compare/causes/optimizer/agree.h"
#include "assay/compare/causes/optimizer/explain_clip.h"
#include "assay/compare/causes/optimizer/gradient_norm.h"
#include "assay/compare/causes/optimizer/least_squares.h"
#include "assay/compare/causes/optimizer/moment_fit.h"
#include "assay/compare/causes/optimizer/other_gradients.h"
#include "assay/compare/causes/optimizer/reference_rule.h"
#include "assay/compare/causes/optimizer/step_faults.h"
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
  double norm = 0, clip = 1;
};

class Faults {
 public:
  Faults(std::vector<Finding>& findings, const std::vector<Pair>& pairs, const Sides& sides)
      : findings_(findings), sides_(sides), recorded_(recorded_steps(findings, pairs, sides)) {
    for (const Dump* dump : {&sides.actual, &sides.reference}) {
      for (std::size_t m = 0; m < dump->mesh.dims.size() && m < dump->mesh.shape.size(); ++m)
        sizes_.push_back({dump->mesh.dims[m], dump->mesh.shape[m]});
    }
  }

  StepOrigins find() {
    const auto rule = reference_rule(recorded_);
    if (!rule) return {};
    rule_ = *rule;
    for (const ParameterStep& s : recorded_.steps) {
      if (!whole_.contains(s.step)) begin_step(s.step);
      judged_.push_back(judge_step(s, rule_, whole_.at(s.step).clip, other_gradients(s, recorded_, sides_)));
    }
    agree(recorded_, rule_, judged_);
    for (const auto& [step, whole] : whole_) explain_clips(step, whole);
    collect();
    report();
    hand_on();
    return std::move(origins_);
  }

 private:
  void begin_step(std::int64_t step) {
    WholeStep& whole = whole_[step];
    whole.squares = gradient_squares(recorded_.gradients[step], true);
    const auto scalar = recorded_.grad_norms.find(step);
    const bool has_norm = scalar != recorded_.grad_norms.end();
    whole.norm = has_norm ? *scalar->second.actual : whole.squares.norm();
    if (has_norm) judge_norm(step, whole, scalar->second);
    const bool has_limit = rule_.max_norm > 0;
    whole.clip =
        has_limit ? std::min(1.0, rule_.max_norm / (whole.norm + rule_.clip_epsilon)) : rule_.clip.at(step);
    settle_clip(step, has_norm, whole);
  }

  double u_of(std::int64_t step) const {
    const auto at = std::ranges::find(recorded_.steps, step, &ParameterStep::step);
    return at->actual.u;
  }

  // Without the 1e-6 the coefficient is that of other frameworks, and no mistake; and a norm that was not
  // recorded is only known as well as it can be added up.
  void settle_clip(std::int64_t step, bool has_norm, WholeStep& whole) const {
    if (!(whole.clip < 1) || !std::isfinite(rule_.max_norm)) return;
    std::vector<Estimate> all;
    for (const ParameterStep& s : recorded_.steps) {
      if (s.step != step) continue;
      if (const auto fit = fit_first_moment(s.actual)) all.push_back(fit->gain);
    }
    const double rest = 1 - rule_.rule.beta1, used = pooled(all).value / rest;
    const double other = rule_.max_norm / (whole.norm + (rule_.clip_epsilon > 0 ? 0 : 1e-6));
    const double u = u_of(step), fitted = 16 * u + error_of_rest(rule_.rule.beta1, u);
    if (rule_.max_norm > 0 && std::abs(used - other) < std::abs(used - whole.clip) &&
        std::abs(used - other) <= fitted * other)
      whole.clip = other;
    if (!has_norm && std::abs(used - whole.clip) <= (whole.squares.error(u) + fitted) * whole.clip)
      whole.clip = used;
  }

  // The recorded norm against that of the recorded gradients, where the reference's own agree.
  void judge_norm(std::int64_t step, const WholeStep& whole, const StepScalar& scalar) {
    const GradientSquares reference = gradient_squares(recorded_.gradients[step], false);
    const auto is_right = [&](const GradientSquares& squares, double norm, double u) {
      return std::abs(norm - squares.norm()) <= (squares.error(u) + 4 * u) * squares.norm();
    };
    const auto at = std::ranges::find(recorded_.steps, step, &ParameterStep::step);
    const double own = at->actual.u;
    if (!is_right(reference, *scalar.reference, at->reference.u)) return;
    if (is_right(whole.squares, *scalar.actual, own)) return;
    const double right = whole.squares.norm(), norm = *scalar.actual;
    const auto why = explain_norm(whole.squares, norm, whole.squares.error(own) + 4 * own, sizes_);
    StepFault f;
    f.cause = Cause::norm;
    f.value = norm;
    f.reference = right;
    f.key = "norm " + why.value_or(fmt::format("x {:.4g}", norm / right));
    f.text = fmt::format("the norm is {:.6g}, that of the recorded gradients {:.6g}: {}", norm, right,
                         why.value_or(fmt::format("{:.6g} times", norm / right)));
    const double allowed = whole.squares.error(own) + 4 * own;
    origins_[*scalar.finding] = {
        std::abs(norm / right - 1) / allowed, "the norm of its own recorded gradients", {}};
    add(f, "", step, *scalar.finding);
  }

  void explain_clips(std::int64_t step, const WholeStep& whole) {
    std::vector<ClipFault> clips;
    for (std::size_t i = 0; i < judged_.size(); ++i) {
      auto& fault = judged_[i].first.fault;
      if (recorded_.steps[i].step == step && fault && fault->cause == Cause::clip)
        clips.push_back({recorded_.steps[i].name(), &*fault});
    }
    explain_clip(clips, rule_, {step, whole.norm, whole.clip, whole.squares, u_of(step), sizes_});
  }

  // One mistake: of all parameters and steps that share it.
  struct Group {
    StepFault fault;  // of the first step
    std::int64_t step = 0;
    std::set<std::string> parameters;          // of the first step
    std::vector<std::size_t> first, findings;  // of the first step; of all
    double residual = 0;
  };

  void add(const StepFault& f, const std::string& name, std::int64_t step, std::size_t finding) {
    Group& g = groups_[{f.cause, f.key}];
    if (g.findings.empty()) {
      g.fault = f;
      g.step = step;
    }
    if (g.step == step) {
      if (!name.empty()) g.parameters.insert(name);
      g.first.push_back(finding);
    }
    g.residual = std::max(g.residual, f.residual);
    g.findings.push_back(finding);
  }

  void collect() {
    for (std::size_t i = 0; i < judged_.size(); ++i) {
      const ParameterStep& s = recorded_.steps[i];
      const auto take = [&](const JudgedStage& stage, std::optional<std::size_t> finding) {
        if (!stage.known || !finding) return;
        origins_[*finding] = {stage.errors.ratio, how(s), {}};
        if (stage.fault) add(*stage.fault, s.name(), s.step, *finding);
        if (stage.also) add(*stage.also, s.name(), s.step, *finding);
      };
      take(judged_[i].first, s.first_finding);
      take(judged_[i].second, s.second_finding);
      take(judged_[i].update, s.after_finding);
    }
  }

  // What was made rightly of a wrong moment is off by the moment's mistake.
  void hand_on() {
    for (std::size_t i = 0; i < judged_.size(); ++i) {
      const ParameterStep& s = recorded_.steps[i];
      const auto root_of = [&](const JudgedStage& stage, std::optional<std::size_t> finding) {
        if (!stage.fault || !finding) return std::optional<std::size_t>();
        const auto root = origins_.at(*finding).root;
        return root ? root : finding;
      };
      auto root = root_of(judged_[i].first, s.first_finding);
      const auto inherit = [&](const JudgedStage& stage, std::optional<std::size_t> finding) {
        if (root && finding && stage.known && stage.errors.holds()) origins_.at(*finding).root = root;
      };
      inherit(judged_[i].second, s.second_finding);
      if (!root) root = root_of(judged_[i].second, s.second_finding);
      inherit(judged_[i].update, s.after_finding);
    }
  }

  std::string how(const ParameterStep& s) const {
    const AdamRule& r = rule_.rule;
    const auto lr = rule_.lr.find(s.step);
    return fmt::format("the reference's Adam ({}betas {:.4g} {:.4g}, eps {:.3g}) on its own recorded inputs",
                       lr == rule_.lr.end() ? "" : fmt::format("lr {:.4g}, ", lr->second), r.beta1, r.beta2,
                       r.epsilon);
  }

  void report() {
    for (auto& [key, g] : groups_) {
      std::ranges::sort(g.first);
      const auto not_passed = std::ranges::find_if(
          g.first, [&](std::size_t i) { return findings_[i].verdict != Verdict::passed; });
      const std::size_t root = not_passed != g.first.end() ? *not_passed : g.first.front();
      Finding& f = findings_[root];
      StepOrigin& own = origins_[root];
      if (f.verdict == Verdict::passed)
        f.reason = fmt::format(
            "within the rule, but not the reference's step (error/allowed {:.3g} of rounding)", own.ratio);
      if (f.verdict != Verdict::replicas_differ) f.verdict = Verdict::failed;
      f.diagnoses.push_back({g.fault.cause, parameters_of(g), g.residual});
      for (const std::size_t i : g.findings) {
        if (i != root && !origins_[i].root) origins_[i].root = root;
      }
      own.root.reset();
    }
  }

  CauseParameters parameters_of(const Group& g) const {
    CauseParameters p = {.step = g.step,
                         .later = g.findings.size() > g.first.size(),
                         .value = g.fault.value,
                         .reference_value = g.fault.reference,
                         .how = g.fault.text};
    if (!g.parameters.empty()) p.parameters = describe_parameters(g.parameters, all_parameters());
    return p;
  }

  std::vector<NamedShape> all_parameters() const {
    std::vector<NamedShape> all;
    for (const ParameterStep& s : recorded_.steps) {
      if (s.step == recorded_.steps.front().step) all.push_back({s.name(), s.shape});
    }
    return all;
  }

  std::vector<Finding>& findings_;
  const Sides& sides_;
  RecordedSteps recorded_;
  std::vector<KnownSize> sizes_;
  ReferenceRule rule_;
  std::map<std::int64_t, WholeStep> whole_;
  std::vector<JudgedStep> judged_;  // of recorded_.steps
  std::map<std::pair<Cause, std::string>, Group> groups_;
  StepOrigins origins_;
};

}  // namespace

StepOrigins find_optimizer_faults(std::vector<Finding>& findings, const std::vector<Pair>& pairs,
                                  const Sides& sides) {
  // A step that has the reference's bits is the reference's step.
  const auto first = std::ranges::find_if(findings, differs);
  if (first == findings.end()) return {};
  StepOrigins origins;
  // The verdicts of the comparison stand without a judgement of the steps.
  if (const auto trouble = trouble_in([&] { origins = Faults(findings, pairs, sides).find(); }))
    first->notes.push_back(fmt::format("the optimizer's steps were not judged: {}", *trouble));
  return origins;
}

}  // namespace assay
