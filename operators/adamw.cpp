#include "assay/operators/engine/adam.h"

namespace assay {
namespace {

struct AdamW {
  static constexpr std::string_view name = "adamw";
  static constexpr std::string_view math =
      "m' = b1 m + (1 - b1) g, v' = b2 v + (1 - b2) g^2, "
      "param' = param (1 - lr wd) - lr m' / (1 - b1^t) / (sqrt(v' / (1 - b2^t)) + eps)";
  static constexpr std::string_view source =
      "arXiv:1711.05101 alg. 2; amsgrad arXiv:1904.09237 as in torch.optim";
  static constexpr std::string_view aliases[] = {"torch.optim.AdamW", "npu_apply_adam_w", "AdamWeightDecay",
                                                 "FusedAdam", "AdamW"};
  static constexpr auto attributes =
      adam_attributes("1e-2", "decoupled: param loses lr weight_decay of itself");
  static constexpr const auto& args = adam_args;
  static constexpr const auto& seen = adam_seen;
  static constexpr auto settings = adam_settings("param_1");
  static constexpr StepUsage step = {"param", "grads", "param_1", adam_states, settings};
  static constexpr Example examples[] = {
      {"S=3x7,T=5", "lr=0.01,amsgrad=true", "exp_avg,exp_avg_sq,max_exp_avg_sq"},
      {"S=6,T=3", "weight_decay=0.5,maximize=true", "exp_avg,exp_avg_sq,max_exp_avg_sq"},
      {"S=4,T=1", "step=1000,amsgrad=true,grad_scale=0.3"},
      {"S=5,T=2", "bias_correction=false,eps_placement=\"inside\"", "max_exp_avg_sq"}};

  static void bind(Dims& d, InputShapes inputs, const Attributes& a) { bind_adam(d, name, inputs, a); }
  template <class T>
  static void forward(Tensors<T>& t, const Dims& d, const Attributes& a) {
    adam_forward(t, d, a, true);
  }
};

}  // namespace

namespace ops {
extern constexpr Operator adamw = describe<AdamW>();
}

}  // namespace assay
