#include "assay/compare/causes/optimizer/judge_moments.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "assay/compare/causes/optimizer/moment_fit.h"
#include "assay/golden/evidence.h"

namespace assay {
namespace {

class Moments {
 public:
  Moments(const ParameterStep& s, const ReferenceRule& r, double clip,
          const std::vector<OtherGradient>& others)
      : t_(s.actual), r_(r), right_{clip, r.l2_of(s.name())}, others_(others) {
    relative_ = 16 * t_.u + error_of_rest(r.rule.beta1, t_.u) + storage_error(t_.gradient, t_.u);
    relative2_ = 32 * t_.u + error_of_rest(r.rule.beta2, t_.u) + 2 * storage_error(t_.gradient, t_.u);
  }

  void first(JudgedStage& stage) {
    stage.known = true;
    stage.errors = first_moment_errors(t_, r_.rule, right_);
    if (stage.errors.holds()) {
      used_ = right_;
      return;
    }
    const TensorSource* before = t_.first_before ? &*t_.first_before : nullptr;
    stage.fault = not_updated(*t_.first, before, "exp_avg", stage.errors);
    if (stage.fault) return;
    if (const auto fit = fit_first_moment(t_)) {
      stage.fault = named(*fit);
      if (stage.fault) return;
    }
    // In its place rather than added: a sum of two shares is also one of them less than the whole.
    for (const bool instead : {true, false}) {
      for (const OtherGradient& other : others_) {
        const auto fit = fit_other_gradient(t_, r_.rule.beta1, other.tensor);
        if (!fit) continue;
        stage.fault = of_other(*fit, other, instead);
        if (stage.fault) return;
      }
    }
  }

  void second(JudgedStage& stage) {
    stage.known = true;
    stage.errors = used_ ? second_moment_errors(t_, r_.rule, *used_) : from_first();
    if (stage.errors.holds()) return;
    const TensorSource* before = t_.second_before ? &*t_.second_before : nullptr;
    stage.fault = not_updated(*t_.second, before, "exp_avg_sq", stage.errors);
    if (stage.fault || !used_) return;
    if (const auto fit = fit_second_moment(t_, *used_)) stage.fault = named_second(*fit);
  }

  std::optional<UsedGradient> used() const { return used_; }

 private:
  static StepFault fault(Cause cause, std::string key, std::string text, const StepErrors& left) {
    return {cause, std::move(key), std::move(text), left.ratio};
  }

  std::optional<StepFault> named(const MomentFit& fit) {
    const double b1 = r_.rule.beta1, rest = 1 - b1, c = right_.clip;
    const bool starts = t_.starts;
    const bool same_kept = starts || is_near(fit.kept, b1, relative_);
    const Estimate clip = fit.gain.scaled(1 / rest);
    double l2 = fit.l2_gain.value / rest;
    if (same_kept && is_near(clip, c, relative_)) {
      // A short number that does is the program's own, and exact.
      const auto number = short_number({l2, fit.l2_gain.sigma / rest}, 1e-3 * std::abs(l2));
      if (number && first_moment_errors(t_, r_.rule, {c, *number}).holds()) l2 = *number;
      used_ = {c, l2};
      StepFault f = fault(Cause::l2_decay, fmt::format("l2 {:.3g} {:.3g}", l2, right_.l2), "", fit.errors);
      f.value = l2;
      f.reference = right_.l2;
      f.text = l2 == 0
                   ? fmt::format("weight decay {:.4g} is not added to the gradient (L2) as in the reference",
                                 right_.l2)
                   : fmt::format("weight decay {:.4g} is added to the gradient (L2){}", l2,
                                 right_.l2 == 0 ? "; the reference adds none"
                                                : fmt::format("; the reference adds {:.4g}", right_.l2));
      return f;
    }
    if (fit.l2_gain.value != 0) return {};
    if (!starts) {
      const Estimate rest_of_it = fit.kept.scaled(-1, 1);
      if (is_near({fit.gain.value - c * rest_of_it.value,
                   fit.gain.sigma + std::abs(c) * rest_of_it.sigma + relative_ * std::abs(fit.gain.value)},
                  0, 0)) {
        used_ = UsedGradient{c, 0};
        if (is_near(fit.kept, b1 * b1, relative_)) return twice(fit.errors);
        return of_beta1(fit.kept, relative_, fit.errors);
      }
      if (std::abs(fit.kept.value) <= improbable * fit.kept.sigma + relative_ &&
          is_near(clip, c, relative_)) {
        used_ = UsedGradient{c, 0};
        return fault(Cause::step_stale, "reset exp_avg",
                     "exp_avg starts from zero at this step: what it was before is lost", fit.errors);
      }
      if (is_near(fit.gain, c, relative_) && same_kept) {
        used_ = UsedGradient{c, 0};
        return fault(Cause::betas, "no 1 - beta1", "the gradient joins exp_avg without the factor 1 - beta1",
                     fit.errors);
      }
      if (!same_kept) return {};
      return of_scale(clip, fit.errors);
    }
    return of_first_step(fit, clip);
  }

  // At the first step (1 - beta1) c shows only as a product; the second moment tells which is off.
  std::optional<StepFault> of_first_step(const MomentFit& fit, const Estimate& clip) {
    const double c = right_.clip, ratio = clip.value / c;
    const auto second = fit_second_moment(t_, {1, 0});
    if (second) {
      const double right = (1 - r_.rule.beta2) * c * c;
      const Estimate of_square = second->gain.scaled(1 / right);
      if (ratio > 0 && is_near(of_square, 1, relative2_)) {
        used_ = right_;
        const Estimate beta = fit.gain.scaled(-1 / c, 1);
        const double shown = relative_ / std::max(1 - r_.rule.beta1, 1e-3);
        return of_beta1(beta, shown, fit.errors);
      }
      if (is_near({ratio, 0}, 1 + r_.rule.beta1, relative_) &&
          is_near(of_square, 1 + r_.rule.beta2, relative2_)) {
        used_ = right_;
        return twice(fit.errors);
      }
    }
    return of_scale(clip, fit.errors);
  }

  StepFault of_beta1(const Estimate& beta, double relative, const StepErrors& left) const {
    const std::string own = brief(beta, relative);
    StepFault f = fault(Cause::betas, "beta1 " + own,
                        fmt::format("beta1 is {}, the reference's {:.4g}", own, r_.rule.beta1), left);
    f.alternative = AlternativeRule{r_.rule};
    f.value = f.alternative->rule.beta1 = std::stod(own);
    f.reference = r_.rule.beta1;
    return f;
  }

  static StepFault twice(const StepErrors& left) {
    return fault(Cause::not_updated, "twice",
                 "the step is taken twice: its moments took the gradient in two times", left);
  }

  StepFault of_scale(const Estimate& clip, const StepErrors& left) {
    used_ = UsedGradient{clip.value, 0};
    if (is_near(clip, -right_.clip, relative_))
      return fault(Cause::step_sign, "sign of gradient", "the gradient enters with the other sign", left);
    StepFault f =
        fault(Cause::clip, "clip",
              fmt::format("gradients are multiplied by {:.6g}, where the reference's rule gives {:.6g}",
                          clip.value, right_.clip),
              left);
    f.value = clip.value;
    f.reference = right_.clip;
    return f;
  }

  std::optional<StepFault> of_other(const MomentFit& fit, const OtherGradient& other, bool instead) {
    const double b1 = r_.rule.beta1, full = (1 - b1) * right_.clip;
    // As much of it as shows beside the rounding of the right one.
    const bool without_own = std::abs(fit.gain.value) <= improbable * fit.gain.sigma + relative_ * full;
    if (without_own != instead) return {};
    const Estimate share = fit.other_gain.scaled(1 / full);
    const std::string amount =
        is_near(share, 1, relative_) ? "" : fmt::format("{} x ", brief(share, relative_));
    if (without_own)
      return fault(Cause::step_stale, "instead " + other.text,
                   fmt::format("the gradient that is used is {}{}, not the reduced one of this step", amount,
                               other.text),
                   fit.errors);
    if (!is_near(fit.gain, full, relative_)) return {};
    return fault(Cause::step_stale, "added " + other.text,
                 fmt::format("to the gradient that is used {}{} is added", amount, other.text), fit.errors);
  }

  std::optional<StepFault> named_second(const MomentFit& fit) {
    const double b2 = r_.rule.beta2, rest = 1 - b2;
    const bool starts = t_.starts;
    const Estimate implied = fit.gain.scaled(-1, 1);
    const bool is_reset = !starts && std::abs(fit.kept.value) <= improbable * fit.kept.sigma + relative2_;
    if (is_reset && is_near(fit.gain, rest, relative2_))
      return fault(Cause::step_stale, "reset exp_avg_sq",
                   "exp_avg_sq starts from zero at this step: what it was before is lost", fit.errors);
    const bool same_kept = starts || is_near(fit.kept, b2, relative2_);
    const double ratio = fit.gain.value / rest;
    const double own_scale = std::sqrt(std::max(0.0, ratio)) * used_->clip;
    if (same_kept && used_->clip != 1 && is_near({own_scale, fit.gain.sigma}, 1, relative2_))
      return fault(Cause::clip, "exp_avg_sq not clipped",
                   "exp_avg_sq takes the gradient as it was before clipping", fit.errors);
    if (!starts && is_near(fit.kept, b2 * b2, relative2_)) return twice(fit.errors);
    if (starts && is_near({ratio, 0}, 1 + b2, relative2_)) return twice(fit.errors);
    if (!starts && !is_near(fit.kept, implied.value, relative2_)) return {};
    const double shown = relative2_ / std::max(rest, 1e-4);
    const std::string own = brief(starts ? implied : fit.kept, shown);
    StepFault f = fault(Cause::betas, "beta2 " + own,
                        fmt::format("beta2 is {}, the reference's {:.4g}", own, b2), fit.errors);
    f.alternative = AlternativeRule{r_.rule};
    f.value = f.alternative->rule.beta2 = std::stod(own);
    f.reference = b2;
    return f;
  }

  // g' = (m' - b1 m) / (1 - b1): whatever was used, both moments should have it.
  StepErrors from_first() const {
    const double b1 = r_.rule.beta1, b2 = r_.rule.beta2, rest = 1 - b1;
    const TensorSource* m = t_.first_before ? &*t_.first_before : nullptr;
    const TensorSource* v = t_.second_before ? &*t_.second_before : nullptr;
    constexpr double roundings = 8;  // of a moment: adam_rule.cpp
    const double stored = storage_error(t_.first, t_.u), stored2 = storage_error(t_.second, t_.u);
    return check_elements({&*t_.second, v, &*t_.first, m}, [&](const double* x) {
      const double g = (x[2] - b1 * x[3]) / rest;
      const double of_g =
          (roundings * t_.u * (std::abs(x[3]) + std::abs(x[2])) + stored * std::abs(x[2])) / rest +
          error_of_rest(b1, t_.u) * std::abs(g);
      const double value = b2 * x[1] + (1 - b2) * g * g;
      return Expected{value, (1 - b2) * of_g * (2 * std::abs(g) + of_g) + relative2_ * value +
                                 stored2 * value + flush_error};
    });
  }

  const StepTensors& t_;
  const ReferenceRule& r_;
  UsedGradient right_;
  const std::vector<OtherGradient>& others_;
  std::optional<UsedGradient> used_;
  double relative_ = 0, relative2_ = 0;
};

}  // namespace

bool is_near(const Estimate& e, double target, double relative) {
  return std::abs(e.value - target) <=
         improbable * e.sigma + relative * std::max(std::abs(e.value), std::abs(target));
}

std::string brief(const Estimate& e, double relative) {
  const auto number = short_number(e, relative * std::abs(e.value));
  return fmt::format("{:.6g}", number.value_or(e.value));
}

std::optional<StepFault> not_updated(const TensorSource& after, const TensorSource* before, const char* what,
                                     const StepErrors& over) {
  std::int64_t old = 0, inside = 0, zeros = 0;
  for_each_element({&after, before}, [&](std::int64_t at, const double* x) {
    if (x[0] != x[1]) return;
    ++old;
    zeros += x[0] == 0 ? 1 : 0;
    inside += at >= over.first && at <= over.last ? 1 : 0;
  });
  const std::int64_t size = after.size(), range = over.last - over.first + 1;
  if (old == size)
    return StepFault{Cause::not_updated, fmt::format("{} not updated", what),
                     zeros == size
                         ? fmt::format("{} stays 0: gradients are multiplied by 0, as a clip by an infinite "
                                       "norm does, or it is not updated",
                                       what)
                         : fmt::format("{} is not updated: it is what it was before the step", what),
                     0};
  // Single elements may be as they were, by chance or without a gradient.
  constexpr std::int64_t fewest = 4;
  if (inside != range || range < fewest) return {};
  const bool is_part = size % range == 0 && over.first % range == 0;
  const std::string part = is_part ? fmt::format(" (part {} of {})", over.first / range, size / range) : "";
  return StepFault{
      Cause::not_updated, fmt::format("{} not updated in part", what),
      fmt::format("{} is not updated in elements {}..{} of {}{}: they are what they were before the step",
                  what, over.first, over.last, size, part),
      0};
}

std::optional<UsedGradient> judge_moments(const ParameterStep& s, const ReferenceRule& r, double clip,
                                          const std::vector<OtherGradient>& others, JudgedStep& judged) {
  if (!r.reproduces(s, ReferenceRule::Stage::first)) return {};
  Moments moments(s, r, clip, others);
  moments.first(judged.first);
  if (r.reproduces(s, ReferenceRule::Stage::second)) moments.second(judged.second);
  return moments.used();
}

}  // namespace assay
