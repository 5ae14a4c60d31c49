#include "assay/golden/error.h"
#include "assay/operators/engine/optimizer.h"

namespace assay {
namespace {

// Without momentum there is no buffer; the first one is the gradient itself, not 1 - dampening of it.
struct Sgd {
  static constexpr std::string_view name = "sgd";
  static constexpr std::string_view math =
      "g' = g + wd param, b' = momentum b + (1 - dampening) g', param' = param - lr b'; "
      "nesterov: param' = param - lr (g' + momentum b')";
  static constexpr std::string_view source = "torch.optim.SGD; Sutskever et al. 2013, sec. 2";
  static constexpr std::string_view aliases[] = {"torch.optim.SGD", "SGD", "Momentum", "FusedSGD"};
  static constexpr Attribute attributes[] = {
      {"steps", "null", "how many steps; null: as many as grads has"},
      {"lr", "1e-3", "learning rate"},
      {"momentum", "0", "what the buffer keeps of itself; 0: there is none"},
      {"dampening", "0", "what the buffer does not take of the gradient"},
      {"weight_decay", "0", "the gradient gains weight_decay param"},
      {"nesterov", "false", "look ahead: the gradient plus momentum times the buffer"},
      {"maximize", "false", "ascend: the gradients change sign"},
      grad_scale};
  static constexpr Seen seen[] = {{"momentum", "0.9", "Goyal et al. 2017"},
                                  {"momentum", "0.99", "nnU-Net"},
                                  {"nesterov", "true", "Sutskever et al. 2013"}};
  static constexpr StepState states[] = {{"momentum_buffer", "momentum_buffer_1"}};
  static constexpr StepSetting settings[] = {{"momentum", StepNumber::kept, "momentum_buffer_1"},
                                             {"grad_scale", StepNumber::gradient, "momentum_buffer_1"},
                                             {"weight_decay", StepNumber::decay, "momentum_buffer_1"},
                                             {"lr", StepNumber::rate, "param_1"},
                                             {"nesterov", StepNumber::form, "param_1"}};
  static constexpr StepUsage step = {"param", "grads", "param_1", states, settings, true};
  static constexpr Arg args[] = {
      {"param", "S*", Role::param},
      {"grads", "T,S*", Role::input},
      {.name = "momentum_buffer", .shape = "S*", .role = Role::input, .optional = true},
      {.name = "param_#", .shape = "S*", .role = Role::output, .terms = "#"},
      {.name = "momentum_buffer_#", .shape = "S*", .role = Role::output, .terms = "#"},
  };
  static constexpr Example examples[] = {
      {"S=3x7,T=5", "lr=0.1,momentum=0.9,nesterov=true,weight_decay=0.01", "momentum_buffer"},
      {"S=6,T=3", "lr=0.3,momentum=0.9,dampening=0.4,maximize=true,grad_scale=0.3"},
      {"S=4,T=2", "lr=0.1,weight_decay=0.1", "momentum_buffer"}};

  static void bind(Dims& d, InputShapes inputs, const Attributes& a) {
    bind_steps(d, name, inputs, a);
    if (a.flag("nesterov") && (a.real("momentum") <= 0 || a.real("dampening") != 0)) {
      throw Error("sgd: nesterov with momentum {} and dampening {}; expected momentum above 0, no dampening",
                  a.real("momentum"), a.real("dampening"));
    }
    if (find_input(inputs, "momentum_buffer") != nullptr && a.real("momentum") == 0)
      throw Error("sgd: a momentum_buffer is given, but momentum is 0");
  }

  template <class T>
  static void forward(Tensors<T>& t, const Dims& d, const Attributes& a) {
    const T lr = constant<T>(a.real("lr")), momentum = constant<T>(a.real("momentum"));
    const T taken = constant<T>(1 - a.real("dampening")), decay = constant<T>(a.real("weight_decay"));
    const TakenGradient<T> gradient(a);
    const bool has_buffer = a.real("momentum") != 0, decays = a.real("weight_decay") != 0;
    std::vector<T> param = state(t, "param"), buffer = state(t, "momentum_buffer");
    // As in Adam: what is not fused stores every step in the parameter's dtype, and has its constants in it.
    const bool is_narrow = are_narrow(param);
    const auto kept = [&](const T& x) { return is_narrow ? stored(x) : x; };
    const auto grads = t["grads"];
    for (std::int64_t k = 0; k < d.at("T"); ++k) {
      const bool first = k == 0 && !t.has("momentum_buffer");
      for (std::size_t i = 0; i < param.size(); ++i) {
        T g = gradient(grads(k, i));
        if (decays) g = kept(g + kept(kept(decay) * param[i]));
        if (has_buffer) {
          buffer[i] = first ? g : stored(kept(kept(momentum) * buffer[i]) + kept(kept(taken) * g));
          g = a.flag("nesterov") ? kept(g + kept(kept(momentum) * buffer[i])) : buffer[i];
        }
        param[i] -= kept(kept(lr) * g);
      }
      give_state(t, "param", k + 1, param);
      if (has_buffer) give_state(t, "momentum_buffer", k + 1, buffer);
    }
  }
};

}  // namespace

namespace ops {
extern constexpr Operator sgd = describe<Sgd>();
}

}  // namespace assay
