#include "assay/compare/causes/optimizer/adam_rule.h"

#include <cmath>

// Every operation of a kernel errs by u of its result at most; first order, as u^2 is nothing beside u.
namespace assay {
namespace {

// m' and v': a number of the program, the coefficient of the clip, two products and a sum for g'; the product
// with 1 - beta, that with beta, beta itself, their sum; all in either form, b m + (1 - b) g or
// m + (1 - b) (g - m).
constexpr double roundings_of_moment = 8;
// lr, both corrections' divisions, the two roots, the sum with epsilon, the quotient and the product with lr.
constexpr double roundings_of_update = 9;
// 1 - lr decay, rounded twice, its product with p, and the difference; or decay joins the update first.
constexpr double roundings_of_decay = 4;

}  // namespace

double AdamRule::correction1(std::int64_t t) const {
  return corrects ? -std::expm1(static_cast<double>(t) * std::log(beta1)) : 1;
}
double AdamRule::correction2(std::int64_t t) const {
  return corrects ? -std::expm1(static_cast<double>(t) * std::log(beta2)) : 1;
}
double AdamRule::rate(std::int64_t t) const {
  return std::sqrt(correction2(t)) / correction1(t);
}
double AdamRule::floor(std::int64_t t) const {
  if (place == EpsilonPlace::hat) return epsilon;
  return place == EpsilonPlace::inside ? epsilon * correction2(t) : epsilon * std::sqrt(correction2(t));
}

// beta is rounded to the arithmetic, which 1 - beta then shows: u / (1 - beta), and its own rounding.
double error_of_rest(double beta, double u) {
  return u + u / (1 - beta);
}
// A power of t factors, each of them rounded, and its function's own two units; then the difference.
double error_of_correction(double beta, std::int64_t t, double u) {
  const double power = std::pow(beta, static_cast<double>(t));
  return u + power * (static_cast<double>(t) + 2) * u / (1 - power);
}

double storage_error(const std::optional<TensorSource>& t, double u) {
  const double own = t ? unit_roundoff(t->dtype()) : 0;
  return own > u ? own : 0;
}

StepErrors first_moment_errors(const StepTensors& t, const AdamRule& rule, const UsedGradient& used) {
  const double rest = 1 - rule.beta1, of_rest = error_of_rest(rule.beta1, t.u);
  const double stored = storage_error(t.first, t.u), given = storage_error(t.gradient, t.u);
  const TensorSource* before = t.first_before ? &*t.first_before : nullptr;
  const TensorSource* p = used.l2 != 0 ? &*t.before : nullptr;
  return check_elements({&*t.first, before, &*t.gradient, p}, [&](const double* x) {
    const double gain = rest * (used.clip * x[2] + used.l2 * x[3]);
    const double size = rest * (std::abs(used.clip * x[2]) + std::abs(used.l2 * x[3]));
    const double value = rule.beta1 * x[1] + gain;
    return Expected{value, roundings_of_moment * t.u * (std::abs(x[1]) + size) + of_rest * size +
                               given * rest * std::abs(used.clip * x[2]) + stored * std::abs(value) +
                               flush_error};
  });
}

StepErrors second_moment_errors(const StepTensors& t, const AdamRule& rule, const UsedGradient& used) {
  const double rest = 1 - rule.beta2, of_rest = error_of_rest(rule.beta2, t.u);
  const double stored = storage_error(t.second, t.u), given = storage_error(t.gradient, t.u);
  const TensorSource* before = t.second_before ? &*t.second_before : nullptr;
  const TensorSource* p = used.l2 != 0 ? &*t.before : nullptr;
  return check_elements({&*t.second, before, &*t.gradient, p}, [&](const double* x) {
    const double g = used.clip * x[2] + used.l2 * x[3];
    const double size = std::abs(used.clip * x[2]) + std::abs(used.l2 * x[3]);
    const double value = rule.beta2 * x[1] + rest * g * g;
    // The error of g' counts twice in its square.
    return Expected{value, 2 * roundings_of_moment * t.u * (x[1] + rest * size * size) +
                               of_rest * rest * size * size + 2 * given * rest * size * size +
                               stored * value + flush_error};
  });
}

double direction(double first, double second, const UpdateForm& form) {
  if (first == 0) return 0;
  return first / (form.inside ? std::sqrt(second + form.floor) : std::sqrt(second) + form.floor);
}

StepErrors update_errors(const StepTensors& t, const AdamRule& rule, std::int64_t step,
                         const UpdateForm& form) {
  const double corrections =
      rule.corrects ? error_of_correction(rule.beta1, step, t.u) + error_of_correction(rule.beta2, step, t.u)
                    : 0;
  // The root halves the error of v'.
  const double of_update = roundings_of_update * t.u + corrections + storage_error(t.first, t.u) +
                           storage_error(t.second, t.u) / 2;
  const double narrow = storage_error(t.after, t.u);
  return check_elements({&*t.after, &*t.before, &*t.first, &*t.second}, [&](const double* x) {
    const double update = form.rate * direction(x[2], x[3], form);
    const double value = form.kept * x[1] - update;
    return Expected{value, of_update * std::abs(update) +
                               t.u * (roundings_of_decay * std::abs(x[1]) + std::abs(value)) +
                               narrow * (std::abs(x[1]) + std::abs(value)) + flush_error};
  });
}

}  // namespace assay
