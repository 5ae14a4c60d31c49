#pragma once

#include <array>
#include <string_view>

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

constexpr std::array<Attribute, 10> adam_attributes(std::string_view decay, std::string_view meaning) {
  return {{{"steps", "null", "how many steps; null: as many as grads has"},
           {"lr", "1e-3", "learning rate"},
           {"betas", "[0.9, 0.999]", "decay of the two moments"},
           {"eps", "1e-8", "added to the root"},
           {"weight_decay", decay, meaning},
           {"amsgrad", "false", "divide by the largest second moment so far"},
           {"maximize", "false", "ascend: the gradients change sign"},
           {"step", "0", "steps taken before"},
           {"bias_correction", "true", "divide the moments by 1 - beta^t"},
           {"eps_placement", "\"outside\"",
            "outside: sqrt(v / (1 - b2^t)) + eps, as torch; inside: sqrt(v / (1 - b2^t) + eps), optax's "
            "eps_root; hat: (sqrt(v) + eps) / sqrt(1 - b2^t), as TensorFlow, MindSpore and ONNX"}}};
}

// 1 - beta^t. Written out, the subtraction would cancel: the power is 0.999 at first.
template <class T>
T bias_correction(double beta, std::int64_t t) {
  return host_scalar<T>(Truth(1) - pow(Truth(beta), Truth(static_cast<double>(t))));
}

/// @param decoupled  param loses lr weight_decay of itself (AdamW); else the gradient gains weight_decay
/// param
template <class T>
void adam_forward(Tensors<T>& t, const Dims& d, const Attributes& a, bool decoupled) {
  const double beta1 = a.list("betas")[0], beta2 = a.list("betas")[1];
  const T b1 = constant<T>(beta1), b2 = constant<T>(beta2);
  const T rest1 = constant<T>(1 - beta1), rest2 = constant<T>(1 - beta2);
  const bool maximize = a.flag("maximize"), amsgrad = a.flag("amsgrad"), correct = a.flag("bias_correction");
  const bool inside = a.text("eps_placement") == "inside", hat = a.text("eps_placement") == "hat";
  const T lr = constant<T>(a.real("lr")), eps = constant<T>(a.real("eps"));
  const T decay = constant<T>(a.real("weight_decay"));
  const T keep = T(1) - lr * decay;
  std::vector<T> param = state(t, "param"), m = state(t, "exp_avg"), v = state(t, "exp_avg_sq"),
                 v_max = state(t, "max_exp_avg_sq");
  const auto grads = t["grads"];
  const std::int64_t steps = d.at("T"), before = a.integer("step");
  for (std::int64_t k = 0; k < steps; ++k) {
    const std::int64_t step = before + k + 1;
    const T correction1 = bias_correction<T>(beta1, step), correction2 = bias_correction<T>(beta2, step);
    const auto root = [&](const T& second) {
      const T corrected = correct && !hat ? second / correction2 : second;
      if (inside) return sqrt(corrected + eps);
      const T outside = sqrt(corrected) + eps;
      return correct && hat ? outside / sqrt(correction2) : outside;
    };
    for (std::size_t i = 0; i < param.size(); ++i) {
      T g = maximize ? -grads(k, i) : grads(k, i);
      if (!decoupled) g += decay * param[i];
      m[i] = b1 * m[i] + rest1 * g;
      v[i] = b2 * v[i] + rest2 * (g * g);
      if (amsgrad) v_max[i] = maximum(v_max[i], v[i]);
      const T kept = decoupled ? param[i] * keep : param[i];
      const T first = correct ? m[i] / correction1 : m[i];
      param[i] = kept - lr * first / root(amsgrad ? v_max[i] : v[i]);
    }
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
