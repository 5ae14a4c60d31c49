#pragma once

#include <array>
#include <string_view>

#include "assay/golden/parallel.h"
#include "assay/operators/engine/optimizer.h"

/// What adam and adamw share: everything but where the weight decay goes.
namespace assay {

/// @throws Error  betas that are no pair, an eps_placement that is none
void bind_adam(Dims&, std::string_view op, InputShapes, const Attributes&);

inline constexpr Arg adam_args[] = {
    {"param", "S*", Role::param},
    {"grads", "T,S*", Role::input},
    {.name = "exp_avg", .shape = "S*", .role = Role::input, .optional = true},
    {.name = "exp_avg_sq", .shape = "S*", .role = Role::input, .low = .25, .high = 2, .optional = true},
    {.name = "max_exp_avg_sq", .shape = "S*", .role = Role::input, .low = 1, .high = 4, .optional = true},
    {.name = "param_#", .shape = "S*", .role = Role::output, .terms = "#"},
    {.name = "exp_avg_#", .shape = "S*", .role = Role::output, .terms = "#"},
    {.name = "exp_avg_sq_#", .shape = "S*", .role = Role::output, .terms = "#"},
    {.name = "max_exp_avg_sq_#", .shape = "S*", .role = Role::output, .terms = "#"},
};

inline constexpr StepState adam_states[] = {{"exp_avg", "exp_avg_1"}, {"exp_avg_sq", "exp_avg_sq_1"}};

/// @param shows_decay  the output that weight_decay changes first
constexpr std::array<StepSetting, 9> adam_settings(std::string_view shows_decay) {
  return {{{"betas", StepNumber::kept, "exp_avg_1"},
           {"grad_scale", StepNumber::gradient, "exp_avg_1"},
           {"betas", StepNumber::kept, "exp_avg_sq_1", 1},
           {"weight_decay", StepNumber::decay, shows_decay},
           {"lr", StepNumber::rate, "param_1"},
           {"bias_correction", StepNumber::correction, "param_1"},
           {"step", StepNumber::count, "param_1"},
           {"eps_placement", StepNumber::place, "param_1"},
           {"eps", StepNumber::epsilon, "param_1"}}};
}

inline constexpr Seen adam_seen[] = {
    {"betas", "[0.9, 0.999]", "torch, DeepSeek-V2"},
    {"betas", "[0.9, 0.95]", "GPT-3, DeepSeek-V3, TeleChat3"},
    {"betas", "[0.8, 0.95]", "modded-nanogpt"},
    {"betas", "[0.8, 0.999]", "DeepSpeed's examples"},
    {"betas", "[0.9, 0.98]", "arXiv:1706.03762 sec. 5.3"},
    {"betas", "[0.5, 0.999]", "arXiv:1511.06434"},
    {"bias_correction", "false", "mindspore.nn.AdamWeightDecay"},
    {"eps_placement", "\"hat\"", "TensorFlow, MindSpore, ONNX"},
    {"eps_placement", "\"inside\"", "optax's eps_root"},
    {"eps", "1e-6", "mindspore.nn.AdamWeightDecay, arXiv:1810.04805"},
    {"eps", "1e-15", "arXiv:2309.14322"},
    {"eps", "1e-5", "arXiv:2307.09288 sec. 2.2"},
    {"eps", "1e-10", "modded-nanogpt"},
    {"eps", "1e-7", "TensorFlow"},
};

constexpr std::array<Attribute, 11> adam_attributes(std::string_view decay, std::string_view meaning) {
  return {{{"steps", "null", "how many steps; null: as many as grads has"},
           {"lr", "1e-3", "learning rate"},
           {"betas", "[0.9, 0.999]", "decay of the two moments"},
           {"eps", "1e-8", "added to the root"},
           {"weight_decay", decay, meaning},
           {"amsgrad", "false", "divide by the largest second moment so far"},
           {"maximize", "false", "ascend: the gradients change sign"},
           grad_scale,
           {"step", "0", "steps taken before"},
           {"bias_correction", "true", "divide the moments by 1 - beta^t"},
           {"eps_placement", "\"outside\"",
            "outside: sqrt(v / (1 - b2^t)) + eps, as torch; inside: sqrt(v / (1 - b2^t) + eps), optax's "
            "eps_root; hat: (sqrt(v) + eps) / sqrt(1 - b2^t), as TensorFlow, MindSpore and ONNX"}}};
}

// Whether the device of a bound holds betas in its own format, as it does what it keeps between steps (apex's
// multi_tensor_adam.cu); torch computes with them in float64 first.
inline bool holds_betas() {
  return !ErrorScope::current().own && ErrorScope::current().stored_roundoff > 0;
}

template <class T>
T rest_of(double beta) {
  if (std::is_same_v<T, Bound> && holds_betas()) return complement<T>(beta);
  return constant<T>(1 - beta);
}

// 1 - beta^t. Written out, the subtraction would cancel: the power is 0.999 at first. A device that holds
// beta loses by that t roundings of it, and two units of the power's function.
template <class T>
T bias_correction(double beta, std::int64_t t) {
  const auto steps = static_cast<double>(t);
  const T value = host_scalar<T>(Truth(1) - pow(Truth(beta), Truth(steps)));
  if constexpr (std::is_same_v<T, Bound>) {
    if (!holds_betas()) return value;
    const double of_power = std::pow(beta, steps) * (steps + 2) * ErrorScope::current().unit_roundoff;
    return {value.value, value.error + of_power};
  }
  return value;
}

/// @param decoupled  param loses lr weight_decay of itself (AdamW); else the gradient gains weight_decay
/// param
template <class T>
void adam_forward(Tensors<T>& t, const Dims& d, const Attributes& a, bool decoupled) {
  const double beta1 = a.list("betas")[0], beta2 = a.list("betas")[1];
  const T b1 = constant<T>(beta1), b2 = constant<T>(beta2);
  const T rest1 = rest_of<T>(beta1), rest2 = rest_of<T>(beta2);
  const bool amsgrad = a.flag("amsgrad"), correct = a.flag("bias_correction");
  const bool inside = a.text("eps_placement") == "inside", hat = a.text("eps_placement") == "hat";
  const T lr = constant<T>(a.real("lr")), eps = constant<T>(a.real("eps"));
  const TakenGradient<T> taken(a);
  const T decay = constant<T>(a.real("weight_decay"));
  const T keep = T(1) - lr * decay;
  const bool keeps = a.real("lr") * a.real("weight_decay") != 0;
  std::vector<T> param = state(t, "param"), m = state(t, "exp_avg"), v = state(t, "exp_avg_sq"),
                 v_max = state(t, "max_exp_avg_sq");
  // What is not fused stores every step in the parameter's dtype, and has its constants in it (optax).
  const bool is_narrow = are_narrow(param);
  const auto kept = [&](const T& x) { return is_narrow ? stored(x) : x; };
  const auto grads = t["grads"];
  const std::int64_t steps = d.at("T"), before = a.integer("step");
  for (std::int64_t k = 0; k < steps; ++k) {
    const std::int64_t step = before + k + 1;
    const T correction1 = bias_correction<T>(beta1, step), correction2 = bias_correction<T>(beta2, step);
    const auto root = [&](const T& second) {
      const T corrected = correct && !hat ? kept(second / kept(correction2)) : second;
      if (inside) return kept(sqrt(kept(corrected + kept(eps))));
      const T outside = kept(kept(sqrt(corrected)) + kept(eps));
      return correct && hat ? kept(outside / kept(sqrt(correction2))) : outside;
    };
    constexpr std::int64_t work_of_step = 32;
    each_in_parallel(std::ssize(param), grain_of(work_of_step), [&](std::int64_t place) {
      const auto i = static_cast<std::size_t>(place);
      T g = taken(grads(k, i));
      if (!decoupled) g = kept(g + kept(kept(decay) * param[i]));
      m[i] = stored(kept(kept(b1) * m[i]) + kept(kept(rest1) * g));
      v[i] = stored(kept(kept(b2) * v[i]) + kept(kept(rest2) * kept(g * g)));
      if (amsgrad) v_max[i] = maximum(v_max[i], v[i]);
      const T left = decoupled && keeps ? kept(param[i] * keep) : param[i];
      const T first = correct ? kept(m[i] / kept(correction1)) : m[i];
      param[i] = left - kept(kept(kept(lr) * first) / root(amsgrad ? v_max[i] : v[i]));
    });
    const auto give = [&](std::string_view name, std::vector<T>& values) {
      give_state(t, name, k + 1, k + 1 < steps ? values : std::move(values));
    };
    give("param", param);
    give("exp_avg", m);
    give("exp_avg_sq", v);
    if (amsgrad) give("max_exp_avg_sq", v_max);
  }
}

}  // namespace assay
