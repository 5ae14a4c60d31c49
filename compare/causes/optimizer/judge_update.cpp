#include "assay/compare/causes/optimizer/judge_update.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "assay/compare/causes/optimizer/judge_moments.h"
#include "assay/compare/causes/optimizer/moment_fit.h"

namespace assay {
namespace {

// How near a fit must come to be asked; what it finds is verified on every element.
constexpr double rough = 1e-2;
// Step counts that a program may have instead are looked for up to here.
constexpr std::int64_t most_steps = 100'000;

class Update {
 public:
  Update(const ParameterStep& s, const ReferenceRule& r)
      : s_(s), a_(s.actual), r_(r), t_(r.t(s.step)), lr_(r.lr.at(s.step)), right_(r.update_form(s)) {
    relative_ = 24 * a_.u + error_of_correction(r.rule.beta1, t_, a_.u) +
                error_of_correction(r.rule.beta2, t_, a_.u) + storage_error(a_.first, a_.u) +
                storage_error(a_.second, a_.u) / 2;
  }

  void judge(JudgedStage& stage) {
    stage.known = true;
    stage.errors = errors(right_);
    if (stage.errors.holds()) return;
    for (const AdamRule& rule : r_.equivalent_rules) {
      const AlternativeRule equivalent{rule};
      const StepErrors left = update_errors(a_, rule, t_, equivalent.update_form(r_, s_));
      if (!left.holds()) continue;
      stage.errors = left;
      return;
    }
    stage.fault = not_updated(*a_.after, &*a_.before, "the parameter", stage.errors);
    if (!stage.fault) stage.fault = stale_moments();
    if (!stage.fault) stage.fault = with_rule_floor();
    if (!stage.fault) stage.fault = with_own_floor();
    if (!stage.fault) stage.fault = epsilon_inside();
    if (stage.fault) stage.also = also_;
  }

  bool takes(const StepFault& of_rule, JudgedStage& stage) {
    const AlternativeRule& other = *of_rule.alternative;
    const std::int64_t t = t_ + other.steps;
    UpdateForm form = other.update_form(r_, s_);
    StepErrors left = update_errors(a_, other.rule, t, form);
    std::optional<StepFault> decay;
    if (!left.holds()) {
      const auto fit = fit_update(a_, form);
      if (!fit || !is_near(fit->rate, form.rate, rough)) return false;
      const auto held = with_kept(form, fit->kept, lr_ * other.lr);
      if (!held) return false;
      left = *held;
      decay = another_decay(1 - form.kept, lr_ * other.lr, left);
      if (!decay) return false;
    }
    stage.fault = of_rule;
    stage.fault->residual = left.ratio;
    stage.also = decay;
    return true;
  }

 private:
  StepErrors errors(const UpdateForm& form) const { return update_errors(a_, r_.rule, t_, form); }

  static StepFault with_values(StepFault f, double value, double reference) {
    f.value = value;
    f.reference = reference;
    return f;
  }

  // Which all parameters may share; other numbers of it may have been fitted on a few elements.
  static StepFault with(StepFault f, AdamRule rule, std::int64_t steps = 0, double lr = 1) {
    f.alternative = AlternativeRule{rule, steps, lr};
    return f;
  }

  static StepFault fault(Cause cause, std::string key, std::string text, const StepErrors& left) {
    return {cause, std::move(key), std::move(text), left.ratio};
  }

  std::optional<StepFault> stale_moments() const {
    if (a_.starts) return {};
    StepTensors old = a_;
    old.first = a_.first_before;
    old.second = a_.second_before;
    const StepErrors left = update_errors(old, r_.rule, t_, right_);
    if (!left.holds()) return {};
    return fault(Cause::step_stale, "moments of before",
                 "the update is made of the moments of before the step", left);
  }

  // Kept part and rate are other ones; what stands beside the root is not.
  std::optional<StepFault> with_rule_floor() {
    const auto fit = fit_update(a_, right_);
    if (!fit) return {};
    if (auto f = without_correction(*fit)) return f;
    const double ratio = fit->rate.value / right_.rate;
    const Estimate lost = fit->kept.scaled(-1, 1);
    UpdateForm form = right_;
    if (std::abs(ratio - 1) < rough) {
      if (const auto left = with_kept(form, fit->kept, lr_)) return another_decay(1 - form.kept, lr_, *left);
      return another_step(*fit);
    }
    form.rate = -right_.rate;
    if (std::abs(ratio + 1) < rough) {
      if (const auto left = with_kept(form, fit->kept, lr_))
        return fault(Cause::step_sign, "sign of update", "the update has the other sign", *left);
    }
    form = {1 - 2 * (1 - right_.kept), 2 * right_.rate, right_.floor, right_.inside};
    if (std::abs(ratio - 2) < rough && (right_.kept == 1 || is_near(lost, 1 - form.kept, rough))) {
      const StepErrors left = errors(form);
      if (left.holds()) return fault(Cause::not_updated, "update twice", "the update is applied twice", left);
    }
    if (auto f = another_step(*fit)) return f;
    return another_rate(*fit);
  }

  // Sets form.kept to a number that a program may have, near to the fitted one, or to this.
  std::optional<StepErrors> with_kept(UpdateForm& form, const Estimate& kept, double lr) const {
    std::vector<double> numbers = {right_.kept, 1};
    const double decay = (1 - kept.value) / lr;
    if (const auto brief =
            short_number({decay, kept.sigma / lr}, digits_of_decay(decay, lr) * std::abs(decay)))
      numbers.push_back(1 - lr * *brief);
    numbers.push_back(kept.value);
    for (const double k : numbers) {
      form.kept = k;
      const StepErrors left = errors(form);
      if (left.holds()) return left;
    }
    return {};
  }

  std::optional<StepFault> without_correction(const UpdateFit& fit) {
    if (!r_.rule.corrects) return corrected_instead();
    AdamRule plain = r_.rule;
    plain.corrects = false;
    UpdateForm form = {right_.kept, lr_, plain.floor(t_), false};
    const auto own = fit_update(a_, form);
    if (std::abs(fit.rate.value / lr_ - 1) > 10 * rough || !own || !is_near(own->rate, lr_, rough)) return {};
    const auto held = with_kept(form, own->kept, lr_);
    if (!held) return {};
    const StepErrors left = *held;
    StepFault f = fault(Cause::bias_correction, "no bias correction",
                        fmt::format("the moments' bias is not corrected: the update is (1 - beta1^{0}) / "
                                    "sqrt(1 - beta2^{0}) = {1:.4g} of the right one",
                                    t_, 1 / r_.rule.rate(t_)),
                        left);
    return with_decay(with(std::move(f), plain), form.kept, lr_);
  }

  std::optional<StepFault> corrected_instead() const {
    AdamRule corrected = r_.rule;
    corrected.corrects = true;
    const UpdateForm form = {right_.kept, lr_ * corrected.rate(t_), corrected.floor(t_), false};
    const StepErrors left = errors(form);
    if (!left.holds()) return {};
    return with(fault(Cause::bias_correction, "bias correction",
                      "the moments' bias is corrected; the reference's is not", left),
                corrected);
  }

  StepFault with_decay(StepFault f, double kept, double lr) {
    StepErrors left;
    left.ratio = f.residual;
    also_ = another_decay(1 - kept, lr, left);
    return f;
  }

  // The bias is corrected as of another step: a count that was lost, or is one off.
  std::optional<StepFault> another_step(const UpdateFit& fit) const {
    if (!r_.rule.corrects) return {};
    std::int64_t best = 0;
    double nearest = HUGE_VAL;
    for (std::int64_t t = 1; t <= most_steps; ++t) {
      const double off = std::abs(fit.rate.value / lr_ / r_.rule.rate(t) - 1);
      if (t == t_ || off >= nearest) continue;
      nearest = off;
      best = t;
    }
    if (best == 0 || nearest > rough) return {};
    const UpdateForm form = {right_.kept, lr_ * r_.rule.rate(best), r_.rule.floor(best), right_.inside};
    const StepErrors left = errors(form);
    if (!left.holds()) return {};
    StepFault f = fault(
        Cause::bias_correction, "another step",
        fmt::format("the moments' bias is corrected as at step {}, where this is step {}", best, t_), left);
    f = with_values(std::move(f), static_cast<double>(best), static_cast<double>(t_));
    return with(std::move(f), r_.rule, best - t_);
  }

  // 1 - lr decay is rounded: so many digits of the decay are left, and those of a fit.
  double digits_of_decay(double decay, double lr) const {
    constexpr double of_fit = 1e-3;
    return of_fit + 2 * a_.u / std::max(std::abs(lr * decay), a_.u);
  }

  // @param lost  1 - kept, verified
  std::optional<StepFault> another_decay(double lost, double lr, const StepErrors& left) const {
    const double decay = lost / lr, wanted = r_.decay_of(s_.name());
    const double shown = digits_of_decay(std::max(std::abs(decay), wanted), lr);
    if (lost == lr * wanted || std::abs(decay - wanted) <= shown * std::max(std::abs(decay), wanted))
      return {};
    const bool none = lost == 0;
    const std::string own = none ? "0" : brief({decay, 0}, shown);
    StepFault f = fault(Cause::weight_decay, fmt::format("decay {} {:.4g}", own, wanted), "", left);
    f.value = decay;
    f.reference = wanted;
    f.text = none          ? fmt::format("weight decay is missing: the reference has {:.4g}", wanted)
             : wanted == 0 ? fmt::format("weight decay {} where the reference has none", own)
                           : fmt::format("weight decay is {}, the reference's {:.4g}", own, wanted);
    return f;
  }

  std::optional<StepFault> another_rate(const UpdateFit& fit) {
    const Estimate lr = fit.rate.scaled(lr_ / right_.rate);
    const double ratio = lr.value / lr_;
    const std::string own = brief(lr, relative_);
    for (const double number : {std::stod(own), lr.value}) {
      UpdateForm form = right_;
      form.rate = number / lr_ * right_.rate;
      form.kept = 1 - number * r_.decay_of(s_.name());
      StepErrors left = errors(form);
      const bool decays_along = left.holds();
      if (!decays_along) {
        const auto held = with_kept(form, fit.kept, number);
        if (!held) continue;
        left = *held;
      }
      StepFault f = fault(Cause::learning_rate, fmt::format("lr x {:.4g}", ratio),
                          fmt::format("the learning rate is {}, the reference's {:.6g} ({:.6g} times)", own,
                                      lr_, number / lr_),
                          left);
      f = with_values(std::move(f), number, lr_);
      if (decays_along) return with(std::move(f), r_.rule, 0, number / lr_);
      if (form.kept != right_.kept) return with_decay(std::move(f), form.kept, number);
      f.text += "; weight decay is as with the reference's";
      return f;
    }
    return {};
  }

  std::optional<StepFault> with_own_floor() {
    const auto fit = fit_free_update(a_);
    if (!fit || !(fit->floor.value >= 0)) return {};
    // Both corrections or none, and lr as it is: then the floor says where epsilon stands.
    const bool corrected = is_near(fit->rate, lr_ * corrected_rate(), rough),
               plain = !corrected && is_near(fit->rate, lr_, rough);
    if (!corrected && !plain) return {};
    UpdateForm form = {1, corrected ? lr_ * corrected_rate() : lr_, fit->floor.value, false};
    auto held = with_kept(form, fit->kept, lr_);
    if (!held) return {};
    StepErrors left = *held;
    AdamRule unit = r_.rule;
    unit.epsilon = 1;
    unit.corrects = corrected;
    unit.place = EpsilonPlace::outside;
    const Estimate outside = fit->floor.scaled(1 / unit.floor(t_));
    const double eps = r_.rule.epsilon;
    constexpr double relative = 1e-2;  // as far as the fit of small elements goes
    const bool was_outside = r_.rule.place == EpsilonPlace::outside;
    // The number itself, where it does.
    const auto holds_with = [&](double floor) {
      UpdateForm exact = form;
      exact.floor = floor;
      const StepErrors of_exact = errors(exact);
      if (of_exact.holds()) left = of_exact;
      return of_exact.holds();
    };
    if (corrected && was_outside && is_near(fit->floor, eps, relative) && holds_with(eps))
      return with(
          fault(Cause::epsilon, "hat",
                fmt::format("epsilon {:.3g} joins the root before its bias is corrected (\"epsilon hat\")",
                            eps),
                left),
          in_place(EpsilonPlace::hat, eps));
    if (corrected && !was_outside && is_near(outside, eps, relative))
      return with(fault(Cause::epsilon, "outside",
                        fmt::format("epsilon {:.3g} joins the root after its bias is corrected", eps), left),
                  in_place(EpsilonPlace::outside, eps));
    const auto number = short_number(outside, relative * outside.value);
    if (number) holds_with(*number * unit.floor(t_));
    const std::string own = fmt::format("{:.3g}", number.value_or(outside.value));
    const std::string says = fmt::format("epsilon is {}, the reference's {:.3g}", own, eps);
    AdamRule other = in_place(EpsilonPlace::outside, std::stod(own));
    other.corrects = corrected;
    if (corrected || !r_.rule.corrects)
      return with(with_values(fault(Cause::epsilon, "epsilon " + own, says, left), other.epsilon, eps),
                  other);
    const bool same = own == fmt::format("{:.3g}", eps);
    const std::string text = fmt::format(
        "the moments' bias is not corrected: the update is (1 - beta1^{0}) / sqrt(1 - beta2^{0}) = "
        "{1:.4g} of the right one{2}",
        t_, 1 / corrected_rate(), same ? "" : "; and " + says);
    const std::string key = same ? "no bias correction" : "no bias correction, epsilon " + own;
    return with_decay(with(fault(Cause::bias_correction, key, text, left), other), form.kept, lr_);
  }

  double corrected_rate() const {
    AdamRule rule = r_.rule;
    rule.corrects = true;
    return rule.rate(t_);
  }

  AdamRule in_place(EpsilonPlace place, double epsilon) const {
    AdamRule rule = r_.rule;
    rule.place = place;
    rule.epsilon = epsilon;
    return rule;
  }

  // With the rate as it is, (p kept - p')^2 (v' + f) = rate^2 m'^2 gives f. What disturbs it is the rounding
  // of p' times the change times (v' + f).
  std::optional<StepFault> epsilon_inside() const {
    if (r_.rule.place == EpsilonPlace::inside) return {};
    const Columns columns = {&*a_.after, &*a_.before, &*a_.first, &*a_.second};
    const auto fit = fit_elements(columns, 1, [&](const double* x) {
      const double change = right_.kept * x[1] - x[0], square = right_.rate * x[2] * right_.rate * x[2];
      Equation e;
      e.y = square - change * change * x[3];
      e.x = {change * change};
      const double size = (std::abs(x[1]) + std::abs(x[0])) * square;
      e.weight = size > 0 ? std::abs(change) / size : 0;
      return e;
    });
    if (!fit || !(fit->front().value > 0)) return {};
    const double c2 = r_.rule.correction2(t_);
    constexpr double relative = 1e-2;
    const Estimate eps = fit->front().scaled(1 / c2);
    const double number = short_number(eps, relative * eps.value).value_or(eps.value);
    const UpdateForm form = {right_.kept, right_.rate, number * c2, true};
    const StepErrors left = errors(form);
    if (!left.holds()) return {};
    return with(
        fault(Cause::epsilon, fmt::format("inside {:.3g}", number),
              fmt::format("epsilon {:.3g} stands inside of the root; the reference's {:.3g} is added to it",
                          number, r_.rule.epsilon),
              left),
        in_place(EpsilonPlace::inside, number));
  }

  const ParameterStep& s_;
  const StepTensors& a_;
  const ReferenceRule& r_;
  std::int64_t t_;
  double lr_;
  UpdateForm right_;
  double relative_ = 0;
  std::optional<StepFault> also_;
};

}  // namespace

bool takes_rule(const ParameterStep& s, const ReferenceRule& r, const StepFault& of_rule,
                JudgedStage& update) {
  return Update(s, r).takes(of_rule, update);
}

void judge_update(const ParameterStep& s, const ReferenceRule& r, JudgedStep& judged) {
  if (s.actual.before && r.reproduces(s, ReferenceRule::Stage::update)) Update(s, r).judge(judged.update);
}

}  // namespace assay
