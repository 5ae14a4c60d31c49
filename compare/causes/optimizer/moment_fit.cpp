#include "assay/compare/causes/optimizer/moment_fit.h"

#include <cmath>

namespace assay {
namespace {

// As in adam_rule.cpp, and as many again for the factors, which are those of a program only after rounding.
constexpr double roundings_of_sum = 16;

// y = sum of coefficients times columns: fitted by relative errors, then judged on every element.
template <class Terms>
std::optional<std::vector<Estimate>> fit_sum(const Columns& columns, std::size_t n, double u, double stored,
                                             double given, Terms terms, StepErrors& errors) {
  const auto fit = fit_elements(columns, n, [&](const double* x) {
    Equation e;
    e.y = x[0];
    terms(x, e.x);
    double size = std::abs(x[0]);
    e.weight = size > 0 ? 1 / size : 0;
    return e;
  });
  if (!fit) return {};
  errors = check_elements(columns, [&](const double* x) {
    LeastSquares::Coefficients row{};
    terms(x, row);
    double value = 0, size = 0;
    for (std::size_t k = 0; k < n; ++k) {
      value += (*fit)[k].value * row[k];
      size += std::abs((*fit)[k].value * row[k]);
    }
    return Expected{value, (roundings_of_sum * u + given) * size + stored * std::abs(value) + flush_error};
  });
  return fit;
}

}  // namespace

std::optional<MomentFit> fit_first_moment(const StepTensors& t) {
  const TensorSource* before = t.first_before ? &*t.first_before : nullptr;
  const TensorSource* p = t.before ? &*t.before : nullptr;
  const double stored = storage_error(t.first, t.u), given = storage_error(t.gradient, t.u);
  std::optional<MomentFit> last;
  for (const bool with_p : {false, true}) {
    if (with_p && p == nullptr) continue;
    // Which columns there are.
    std::vector<int> used;
    if (before != nullptr) used.push_back(1);
    used.push_back(2);
    if (with_p) used.push_back(3);
    MomentFit found;
    const auto fit = fit_sum(
        {&*t.first, before, &*t.gradient, p}, used.size(), t.u, stored, given,
        [&](const double* x, LeastSquares::Coefficients& row) {
          for (std::size_t k = 0; k < used.size(); ++k) row[k] = x[used[k]];
        },
        found.errors);
    if (!fit) continue;
    for (std::size_t k = 0; k < used.size(); ++k) {
      Estimate* const all[] = {nullptr, &found.kept, &found.gain, &found.l2_gain};
      *all[used[k]] = (*fit)[k];
    }
    if (found.errors.holds()) return found;
  }
  return {};
}

std::optional<MomentFit> fit_other_gradient(const StepTensors& t, double beta1, const TensorSource& x) {
  const TensorSource* before = t.first_before ? &*t.first_before : nullptr;
  const Columns columns = {&*t.first, before, &*t.gradient, &x};
  const auto fit = fit_elements(columns, 2, [&](const double* e) {
    const double size = std::abs(e[0]) + beta1 * std::abs(e[1]);
    return Equation{e[0] - beta1 * e[1], {e[2], e[3]}, size > 0 ? 1 / size : 0};
  });
  if (!fit) return {};
  MomentFit found;
  found.kept = {beta1, 0};
  found.gain = (*fit)[0];
  found.other_gain = (*fit)[1];
  const double stored = storage_error(t.first, t.u), given = storage_error(t.gradient, t.u);
  found.errors = check_elements(columns, [&](const double* e) {
    const double own = found.gain.value * e[2], other = found.other_gain.value * e[3];
    const double value = beta1 * e[1] + own + other;
    return Expected{value,
                    (roundings_of_sum * t.u + given) * (std::abs(e[1]) + std::abs(own) + std::abs(other)) +
                        stored * std::abs(value) + flush_error};
  });
  if (!found.errors.holds()) return {};
  return found;
}

std::optional<MomentFit> fit_second_moment(const StepTensors& t, const UsedGradient& used) {
  const TensorSource* before = t.second_before ? &*t.second_before : nullptr;
  const TensorSource* p = used.l2 != 0 ? &*t.before : nullptr;
  const std::size_t n = before != nullptr ? 2 : 1;
  MomentFit found;
  const auto fit = fit_sum(
      {&*t.second, before, &*t.gradient, p}, n, t.u, storage_error(t.second, t.u),
      2 * storage_error(t.gradient, t.u),
      [&](const double* x, LeastSquares::Coefficients& row) {
        const double g = used.clip * x[2] + used.l2 * x[3];
        row[0] = g * g;
        row[1] = x[1];
      },
      found.errors);
  if (!fit || !found.errors.holds()) return {};
  found.gain = (*fit)[0];
  if (n == 2) found.kept = (*fit)[1];
  return found;
}

// Weights: the rounding of p' is what disturbs a step.
std::optional<UpdateFit> fit_update(const StepTensors& t, const UpdateForm& form) {
  const Columns columns = {&*t.after, &*t.before, &*t.first, &*t.second};
  const auto fit = fit_elements(columns, 2, [&](const double* x) {
    Equation e;
    e.y = x[0] - x[1];
    e.x = {x[1], -direction(x[2], x[3], form)};
    const double size = std::abs(x[1]) + std::abs(x[0]) + std::abs(e.y);
    e.weight = size > 0 ? 1 / size : 0;
    return e;
  });
  if (!fit) return {};
  return UpdateFit{(*fit)[0].scaled(1, 1), (*fit)[1], {form.floor, 0}};
}

// (p - p') (sqrt v + f) = rate m + lost p (sqrt v + f) is linear in rate, f, lost and lost f.
std::optional<UpdateFit> fit_free_update(const StepTensors& t) {
  const Columns columns = {&*t.after, &*t.before, &*t.first, &*t.second};
  const auto fit = fit_elements(columns, 4, [&](const double* x) {
    Equation e;
    const double change = x[1] - x[0], root = std::sqrt(x[3]);
    e.y = change * root;
    e.x = {x[2], -change, x[1] * root, x[1]};
    const double size = (std::abs(x[1]) + std::abs(x[0])) * root;
    e.weight = size > 0 ? 1 / size : 0;
    return e;
  });
  if (!fit) return {};
  return UpdateFit{(*fit)[2].scaled(-1, 1), (*fit)[0], (*fit)[1]};
}

}  // namespace assay
