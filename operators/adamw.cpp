#include "assay/golden/error.h"
#include "assay/operators/operator.h"

namespace assay {
namespace {

// Several steps in a row: grads holds one gradient per step, and every step's state is an output. A state
// that is not given is 0. The moments of step t are sums of t gradients.
struct AdamW {
  static constexpr std::string_view name = "adamw";
  static constexpr std::string_view math =
      "m' = b1 m + (1 - b1) g, v' = b2 v + (1 - b2) g^2, "
      "param' = param (1 - lr wd) - lr m' / (1 - b1^t) / (sqrt(v' / (1 - b2^t)) + eps)";
  static constexpr std::string_view source =
      "arXiv:1711.05101 alg. 2; amsgrad arXiv:1904.09237 as in torch.optim";
  static constexpr std::string_view aliases[] = {"torch.optim.AdamW", "npu_apply_adam_w", "AdamWeightDecay",
                                                 "FusedAdam", "AdamW"};
  static constexpr Attribute attributes[] = {
      {"steps", "null", "how many steps; null: as many as grads has"},
      {"lr", "1e-3", "learning rate"},
      {"betas", "[0.9, 0.999]", "decay of the two moments"},
      {"eps", "1e-8", "added to the root"},
      {"weight_decay", "1e-2", "decoupled: param loses lr weight_decay of itself"},
      {"amsgrad", "false", "divide by the largest second moment so far"},
      {"maximize", "false", "ascend: the gradients change sign"},
      {"step", "0", "steps taken before"}};
  static constexpr Arg args[] = {
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
  static constexpr Example examples[] = {
      {"S=3x7,T=5", "lr=0.01,amsgrad=true", "exp_avg,exp_avg_sq,max_exp_avg_sq"},
      {"S=6,T=3", "weight_decay=0.5,maximize=true", "exp_avg,exp_avg_sq,max_exp_avg_sq"},
      {"S=4,T=1", "step=1000,amsgrad=true"}};

  static void bind(Dims& d, InputShapes inputs, const Attributes& a) {
    d.set("S", shape_of_input(inputs, "param"));
    const Shape& grads = shape_of_input(inputs, "grads");
    const std::int64_t steps = grads.empty() ? 0 : grads[0];
    if (a.has("steps") && a.integer("steps") != steps) {
      throw Error("adamw: steps is {}; grads has shape {}: one gradient per step", a.integer("steps"),
                  to_string(grads));
    }
    if (a.list("betas").size() != 2)
      throw Error("adamw: betas has {} values; expected 2", a.list("betas").size());
  }

  // 1 - beta^t. Written out, the subtraction would cancel: the power is 0.999 at first.
  template <class T>
  static T bias_correction(double beta, std::int64_t t) {
    return host_scalar<T>(Truth(1) - pow(Truth(beta), Truth(static_cast<double>(t))));
  }

  template <class T>
  static void forward(Tensors<T>& t, const Dims& d, const Attributes& a) {
    const double beta1 = a.list("betas")[0], beta2 = a.list("betas")[1];
    const T b1 = constant<T>(beta1), b2 = constant<T>(beta2);
    const T rest1 = constant<T>(1 - beta1), rest2 = constant<T>(1 - beta2);
    const bool maximize = a.flag("maximize"), amsgrad = a.flag("amsgrad");
    const T lr = constant<T>(a.real("lr")), eps = constant<T>(a.real("eps"));
    const T keep = T(1) - lr * constant<T>(a.real("weight_decay"));
    const auto state = [&](std::string_view name) {
      return t.has(name) ? t.slot(name).values : std::vector<T>(t.slot("param").values.size(), T(0));
    };
    std::vector<T> param = state("param"), m = state("exp_avg"), v = state("exp_avg_sq"),
                   v_max = state("max_exp_avg_sq");
    const auto grads = t["grads"];
    const std::int64_t steps = d.at("T"), before = a.integer("step");
    for (std::int64_t k = 0; k < steps; ++k) {
      const std::int64_t step = before + k + 1;
      const T correction1 = bias_correction<T>(beta1, step), correction2 = bias_correction<T>(beta2, step);
      for (std::size_t i = 0; i < param.size(); ++i) {
        const T g = maximize ? -grads(k, i) : grads(k, i);
        m[i] = b1 * m[i] + rest1 * g;
        v[i] = b2 * v[i] + rest2 * (g * g);
        if (amsgrad) v_max[i] = maximum(v_max[i], v[i]);
        const T second = amsgrad ? v_max[i] : v[i];
        param[i] = param[i] * keep - lr * (m[i] / correction1) / (sqrt(second / correction2) + eps);
      }
      const auto give = [&](std::string_view name, const std::vector<T>& values) {
        auto& slot = t.slots()[std::string(name) + std::to_string(k + 1)];
        slot.shape = d.extents("S");
        slot.values = values;
      };
      give("param_", param);
      give("exp_avg_", m);
      give("exp_avg_sq_", v);
      if (amsgrad) give("max_exp_avg_sq_", v_max);
    }
  }
};

}  // namespace

namespace ops {
extern constexpr Operator adamw = describe<AdamW>();
}

}  // namespace assay
