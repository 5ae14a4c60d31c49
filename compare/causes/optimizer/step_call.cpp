#include "assay/compare/causes/optimizer/step_call.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "assay/golden/error.h"

namespace assay {
namespace {

// Elements of a window, which is a call of its own; of a fit: so many tell a number to six digits in float32.
constexpr std::int64_t window_elements = 1 << 14, fitted_elements = 1 << 11, fitted_window = 1 << 9;

// Terms of one product of a matrix with its transpose, of which a step has a dozen: some seconds in all.
constexpr double most_of_matrix = 0x1p27;

// A part of a tensor that is stepped by itself: any elements, or a whole matrix.
struct StepWindow {
  std::int64_t begin, count;
  Shape shape;
};

std::vector<StepWindow> windows_of(const Operator& op, const Shape& shape, Elements which) {
  const std::int64_t size = element_count(shape);
  const std::string_view letters = input_arg(op, op.step->parameter).shape;
  std::int64_t step = which == Elements::some ? fitted_window : window_elements;
  Shape own;
  if (steps_matrices(op)) {
    if (shape.size() < 2) throw Error("{}: expected a matrix", op.name);
    own = {shape[shape.size() - 2], shape.back()};
    step = own[0] * own[1];
    if (static_cast<double>(step) * static_cast<double>(std::min(own[0], own[1])) > most_of_matrix)
      throw Error("{}: a matrix {} takes too long", op.name, to_string(own));
  } else if (letters != "S*") {
    own = shape;
    step = size;
  }
  std::vector<StepWindow> all;
  for (std::int64_t begin = 0; begin < size && step > 0; begin += step) {
    const std::int64_t count = std::min(step, size - begin);
    all.push_back({begin, count, own.empty() ? Shape{count} : own});
  }
  if (which != Elements::some) return all;
  const auto most =
      static_cast<std::size_t>(std::max<std::int64_t>(1, fitted_elements / std::max<std::int64_t>(step, 1)));
  if (all.size() <= most) return all;
  std::vector<StepWindow> some;
  for (std::size_t i = 0; i < most; ++i) some.push_back(all[i * all.size() / most]);
  return some;
}

Tensor part(const TensorSource& t, const StepWindow& w) {
  return t.window(w.begin, w.count).reshaped(w.shape);
}

// The name of a result after this many steps: "param_1".
std::string after_steps(std::string_view output, std::int64_t times) {
  const bool counts = output.ends_with("_1");
  return counts ? std::string(output.substr(0, output.size() - 1)) + std::to_string(times)
                : std::string(output);
}

Tensor gradient_of(const StepTensors& t, const StepRule& r, const StepWindow& w) {
  const bool in_a_row = input_arg(*r.op, r.op->step->gradient).shape.starts_with("T,");
  Tensor one = part(r.other && !r.adds ? *r.other : t.gradient, w);
  std::vector<double> values = one.values();
  if (r.other && r.adds) {
    const std::vector<double> more = part(*r.other, w).values();
    for (std::size_t i = 0; i < values.size(); ++i) values[i] += more[i];
  }
  if (!in_a_row) return Tensor(w.shape, std::span<const double>(values));
  Shape shape = {r.times};
  shape.insert(shape.end(), w.shape.begin(), w.shape.end());
  const std::vector<double> first = values;
  for (std::int64_t k = 1; k < r.times; ++k) values.insert(values.end(), first.begin(), first.end());
  return Tensor(shape, std::span<const double>(values));
}

// States are linear in what they were: s' = k s + f. Two golden steps tell k and f.
Tensor state_behind(const StepTensors& t, const StepRule& r, std::vector<NamedTensor> inputs,
                    const StepWindow& w, std::size_t k) {
  const StepState& state = r.op->step->states[k];
  const auto with = [&](double value) {
    const std::vector<double> values(static_cast<std::size_t>(w.count), value);
    std::erase_if(inputs, [&](const NamedTensor& i) { return i.name == state.before; });
    inputs.push_back({std::string(state.before), Tensor(w.shape, std::span<const double>(values))});
    return output_named(compute_golden(*r.op, inputs, r.variant.attributes, Level::fp64, state.after),
                        state.after)
        .values();
  };
  const std::vector<double> of_zero = with(0), of_one = with(1);
  std::vector<double> behind = part(t.states[k], w).values();
  for (std::size_t i = 0; i < behind.size(); ++i) {
    const double kept = of_one[i] - of_zero[i];
    behind[i] = kept == 0 ? behind[i] : (behind[i] - of_zero[i]) / kept;
  }
  return Tensor(w.shape, std::span<const double>(behind));
}

std::vector<NamedTensor> inputs_of(const StepTensors& t, const StepRule& r, const StepWindow& w) {
  const StepUsage& usage = *r.op->step;
  std::vector<NamedTensor> inputs;
  const std::vector<double> zeros(static_cast<std::size_t>(w.count));
  inputs.push_back({std::string(usage.parameter),
                    t.before ? part(*t.before, w) : Tensor(w.shape, std::span<const double>(zeros))});
  inputs.push_back({std::string(usage.gradient), gradient_of(t, r, w)});
  std::vector<NamedTensor> states;
  for (std::size_t k = 0; k < t.states.size(); ++k) {
    const std::string name(usage.states[k].before);
    if (r.from_recorded_states)
      states.push_back({name, state_behind(t, r, inputs, w, k)});
    else if (t.states_before[k] && !r.lost.contains(k))
      states.push_back({name, part(*t.states_before[k], w)});
  }
  inputs.insert(inputs.end(), states.begin(), states.end());
  return inputs;
}

// Subnormals may be flushed, and what stays between steps is stored. What was recorded in a narrower format
// may have been rounded to it on the way.
ErrorModel device_of(const StepTensors& t) {
  ErrorModel model{unit_roundoff(t.arithmetic), std::ldexp(1.0, format_of(t.arithmetic).min_exponent())};
  model.stored_roundoff = model.unit_roundoff;
  const auto see = [&](const TensorSource& x) {
    if (is_float(x.dtype()) && unit_roundoff(x.dtype()) > model.unit_roundoff)
      model.stored_roundoff = std::max(model.stored_roundoff, unit_roundoff(x.dtype()));
  };
  see(t.gradient);
  for (const TensorSource& x : t.states) see(x);
  return model;
}

// The calls of these results in a window, with one bound for all.
std::vector<Call> calls_of(const StepTensors& t, const StepRule& r, const std::vector<std::size_t>& results,
                           const StepWindow& w) {
  const auto name = [&](std::size_t k) {
    const bool is_state = k < t.states.size();
    return after_steps(is_state ? r.op->step->states[k].after : r.op->step->updated, r.times);
  };
  const std::vector<NamedTensor> inputs = inputs_of(t, r, w);
  const std::string only = results.size() == 1 ? name(results.front()) : std::string();
  const auto bound = compute_bound(*r.op, inputs, r.variant.attributes, device_of(t), only);
  std::vector<Call> calls;
  for (const std::size_t k : results) {
    calls.emplace_back(*r.op, inputs, name(k), part(t.result(k), w), Device{.arithmetic = t.arithmetic});
    calls.back().take_device_errors(r.variant, output_named(bound, name(k)).values());
  }
  return calls;
}

bool add_errors(StepErrors& errors, const std::optional<Call::Compared>& c, const StepWindow& w) {
  if (c && c->ratio <= 1) {
    errors.ratio = std::max(errors.ratio, c->ratio);
    return true;
  }
  const std::vector<double> actual = c ? c->actual.values() : std::vector<double>(),
                            golden = c ? c->golden.values() : std::vector<double>();
  for (std::int64_t i = 0; i < w.count; ++i) {
    const auto k = static_cast<std::size_t>(i);
    const bool equal = c && (actual[k] == golden[k] || (std::isnan(actual[k]) && std::isnan(golden[k])));
    const double error = c && !equal ? std::abs(actual[k] - golden[k]) : 0;
    // NaN fails: a ratio that is none counts as the largest.
    const double ratio = equal                                        ? 0
                         : c && c->allowed[k] > 0 && error < infinity ? error / c->allowed[k]
                                                                      : infinity;
    errors.ratio = std::max(errors.ratio, ratio);
    if (ratio <= 1) continue;
    ++errors.over;
    errors.bits += std::min(std::log2(ratio), static_cast<double>(std::numeric_limits<double>::digits));
    if (errors.first < 0) errors.first = w.begin + i;
    errors.last = w.begin + i;
  }
  return errors.over == 0;
}

}  // namespace

std::vector<StepErrors> step_errors(const StepTensors& t, const StepRule& r,
                                    const std::vector<std::size_t>& results, Elements which) {
  std::vector<StepErrors> errors(results.size());
  CallJudge judge(CallJudge::Standard::elements, infinity);
  try {
    bool holds = true;
    for (const StepWindow& w : windows_of(*r.op, t.result(results.front()).shape(), which)) {
      if (!holds && which == Elements::until_wrong) break;
      const std::vector<Call> calls = calls_of(t, r, results, w);
      for (std::size_t i = 0; i < results.size(); ++i)
        holds = add_errors(errors[i], judge.compare(calls[i], r.variant), w) && holds;
    }
  } catch (const Error&) {  // the operator makes nothing of these inputs
    for (StepErrors& e : errors) e.ratio = infinity;
  }
  return errors;
}

StepErrors step_errors(const StepTensors& t, const StepRule& r, std::size_t result, Elements which) {
  return step_errors(t, r, std::vector{result}, which).front();
}

std::optional<StepFit> fit_step(const StepTensors& t, const StepRule& start, std::size_t result,
                                const std::vector<StepSetting>& unknown) {
  constexpr int passes = 12;              // each doubles the digits, once it is near
  constexpr double difference = 0x1p-12;  // of a number: rounding and curvature take a quarter of the digits
  constexpr double farthest = 4;          // of a logarithm in a pass: a number that is solved is near or seen
  StepFit fit{start, std::vector<Estimate>(unknown.size())};
  // A number that turns out to be 0 has no size of its own.
  const auto size_of = [&](std::size_t k) {
    const double size = std::max(std::abs(start.number(unknown[k])), std::abs(fit.rule.number(unknown[k])));
    return size == 0 ? 1 : size;
  };
  const auto is_log = [&](std::size_t k) { return unknown[k].is == StepNumber::epsilon; };
  try {
    const std::vector<StepWindow> windows = windows_of(*start.op, t.result(result).shape(), Elements::some);
    std::vector<Call> calls;
    std::vector<std::vector<double>> allowed;
    for (int pass = 0; pass < passes; ++pass) {
      LeastSquares squares(unknown.size());
      // Bounds cost most, and hardly change once the numbers are near.
      if (pass < 2) {
        calls.clear();
        allowed.clear();
        for (const StepWindow& w : windows) {
          calls.push_back(std::move(calls_of(t, fit.rule, {result}, w).front()));
          const auto compared = calls.back().compare(fit.rule.variant, {}, false);
          if (!compared) return {};
          allowed.push_back(compared->allowed);
        }
      }
      std::vector<StepRule> beside(unknown.size(), fit.rule);
      std::vector<double> steps(unknown.size());
      for (std::size_t k = 0; k < unknown.size(); ++k) {
        const double value = fit.rule.number(unknown[k]);
        steps[k] = size_of(k) * difference;
        beside[k].set(unknown[k], value + steps[k]);
        if (is_log(k)) steps[k] = std::log1p(steps[k] / value);
      }
      for (std::size_t c = 0; c < calls.size(); ++c) {
        const std::vector<double> actual = part(t.result(result), windows[c]).values(),
                                  golden = calls[c].values(fit.rule.variant);
        std::vector<std::vector<double>> others;
        for (const StepRule& b : beside) others.push_back(calls[c].values(b.variant));
        for (std::size_t i = 0; i < golden.size(); ++i) {
          const double off = actual[i] - golden[i], may = allowed[c][i];
          if (!(may > 0) || !std::isfinite(may) || !std::isfinite(off)) continue;
          LeastSquares::Coefficients row{};
          for (std::size_t k = 0; k < unknown.size(); ++k) row[k] = (others[k][i] - golden[i]) / steps[k];
          squares.add(off, row, 1 / may);
        }
      }
      const auto found = squares.solve();
      if (!found) return {};
      bool is_done = true;
      for (std::size_t k = 0; k < unknown.size(); ++k) {
        const Estimate& e = (*found)[k];
        const double value = fit.rule.number(unknown[k]);
        const double next =
            is_log(k) ? value * std::exp(std::clamp(e.value, -farthest, farthest)) : value + e.value;
        if (!std::isfinite(next)) return {};
        const double unit = is_log(k) ? next : 1;
        fit.numbers[k] = {next, e.sigma * unit, e.left, e.reach * unit};
        is_done = is_done && std::abs(next - value) <= difference * difference * size_of(k);
        fit.rule.set(unknown[k], next);
      }
      if (is_done) break;
    }
    for (std::size_t k = 0; k < unknown.size(); ++k) {
      const auto brief = short_number(fit.numbers[k], fit.numbers[k].reach);
      if (brief && (*brief != 0 || !is_log(k))) fit.rule.set(unknown[k], *brief);
    }
  } catch (const Error&) {  // the operator makes nothing of these inputs
    return {};
  }
  return fit;
}

}  // namespace assay
