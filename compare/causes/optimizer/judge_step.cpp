// A step as a whole: mistakes that show in several of its results at once.
#include <fmt/format.h>

#include <algorithm>

#include "assay/compare/causes/optimizer/judge_moments.h"
#include "assay/compare/causes/optimizer/judge_update.h"

namespace assay {
namespace {

// The whole step two times, one after the other with the same gradient: p, m and v in between are computed.
StepErrors errors_of_two_steps(const ParameterStep& s, const ReferenceRule& r, double clip, std::int64_t t) {
  const StepTensors& a = s.actual;
  const AdamRule& rule = r.rule;
  const auto form = [&](std::int64_t of) {
    UpdateForm f = r.update_form(s);
    f.rate = r.lr.at(s.step) * rule.rate(of);
    f.floor = rule.floor(of);
    return f;
  };
  const UpdateForm one = form(t), two = form(t == r.t(s.step) ? t : t + 1);
  const double corrections = error_of_correction(rule.beta1, t, a.u) +
                             error_of_correction(rule.beta2, t, a.u) + error_of_rest(rule.beta1, a.u) +
                             error_of_rest(rule.beta2, a.u);
  constexpr double roundings = 32;  // of two updates, and of the moments in between
  const TensorSource *m = a.first_before ? &*a.first_before : nullptr,
                     *v = a.second_before ? &*a.second_before : nullptr;
  return check_elements(
      {&*a.after, &*a.before, &*a.first, &*a.second, &*a.gradient, m, v}, [&](const double* x) {
        const double g = clip * x[4];
        const double between1 = rule.beta1 * x[5] + (1 - rule.beta1) * g,
                     between2 = rule.beta2 * x[6] + (1 - rule.beta2) * g * g;
        const double first = one.rate * direction(between1, between2, one),
                     second = two.rate * direction(x[2], x[3], two);
        const double value = two.kept * (one.kept * x[1] - first) - second;
        const double size = std::abs(first) + std::abs(second);
        return Expected{
            value, (roundings * a.u + corrections) * size + roundings * a.u * std::abs(x[1]) + flush_error};
      });
}

// The step counts on by itself, or does not.
void take_twice(const ParameterStep& s, const ReferenceRule& r, double clip, JudgedStep& judged) {
  const auto& first = judged.first.fault;
  if (!first || first->key != "twice" || !judged.update.is_wrong()) return;
  const std::int64_t t = r.t(s.step);
  for (const std::int64_t of : {t, 2 * t - 1}) {
    const StepErrors left = errors_of_two_steps(s, r, clip, of);
    if (!left.holds()) continue;
    judged.update.fault = first;
    judged.update.fault->residual = left.ratio;
    judged.update.also.reset();
    return;
  }
}

}  // namespace

// Decay that moved from the parameter to the gradient, or back, is one mistake, not two.
JudgedStep judge_step(const ParameterStep& s, const ReferenceRule& r, double clip,
                      const std::vector<OtherGradient>& others) {
  JudgedStep judged;
  judge_moments(s, r, clip, others, judged);
  judge_update(s, r, judged);
  take_twice(s, r, clip, judged);
  auto &first = judged.first.fault, &update = judged.update.fault;
  if (first && update && first->cause == Cause::l2_decay && update->cause == Cause::weight_decay) {
    const double l2 = first->value.value(), decoupled = update->value.value();
    if (l2 != 0 && decoupled == 0)
      first->text = fmt::format(
          "weight decay {:.4g} is added to the gradient (L2), where the reference takes it from the "
          "parameter",
          l2);
    if (l2 == 0 && decoupled != 0)
      first->text = fmt::format(
          "weight decay {:.4g} is taken from the parameter, where the reference adds it to the gradient (L2)",
          decoupled);
    first->key = "moved decay";
    first->residual = std::max(first->residual, update->residual);
    update = first;
  }
  return judged;
}

}  // namespace assay
