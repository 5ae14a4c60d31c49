#include "assay/operators/engine/adam.h"

#include "assay/golden/error.h"

namespace assay {

void bind_adam(Dims& d, std::string_view op, InputShapes inputs, const Attributes& a) {
  bind_steps(d, op, inputs, a);
  if (a.list("betas").size() != 2)
    throw Error("{}: betas has {} values; expected 2", op, a.list("betas").size());
  const std::string& placement = a.text("eps_placement");
  if (placement != "outside" && placement != "inside" && placement != "hat") {
    throw Error("{}: eps_placement is \"{}\"; expected outside, inside or hat", op, placement);
  }
}

namespace {

struct Adam {
  static constexpr std::string_view name = "adam";
  static constexpr std::string_view math =
      "g' = g + wd param, m' = b1 m + (1 - b1) g', v' = b2 v + (1 - b2) g'^2, "
      "param' = param - lr m' / (1 - b1^t) / (sqrt(v' / (1 - b2^t)) + eps)";
  static constexpr std::string_view source =
      "arXiv:1412.6980 alg. 1; weight_decay and amsgrad as in torch.optim.Adam";
  static constexpr std::string_view aliases[] = {"torch.optim.Adam", "npu_apply_adam", "Adam"};
  static constexpr auto attributes = adam_attributes("0", "the gradient gains weight_decay param");
  static constexpr const auto& args = adam_args;
  static constexpr const auto& seen = adam_seen;
  static constexpr auto settings = adam_settings("exp_avg_1");
  static constexpr StepUsage step = {"param", "grads", "param_1", adam_states, settings};
  static constexpr Example examples[] = {
      {"S=3x7,T=5", "lr=0.01,weight_decay=0.1", "exp_avg,exp_avg_sq,max_exp_avg_sq"},
      {"S=6,T=3", "amsgrad=true,maximize=true,eps_placement=\"inside\"", "exp_avg,exp_avg_sq,max_exp_avg_sq"},
      {"S=4,T=2", "step=10,eps=0.01,eps_placement=\"hat\"", "max_exp_avg_sq"}};

  static void bind(Dims& d, InputShapes inputs, const Attributes& a) { bind_adam(d, name, inputs, a); }
  template <class T>
  static void forward(Tensors<T>& t, const Dims& d, const Attributes& a) {
    adam_forward(t, d, a, false);
  }
};

}  // namespace

namespace ops {
extern constexpr Operator adam = describe<Adam>();
}

}  // namespace assay
