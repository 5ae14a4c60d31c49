#include "assay/align/optimizer.h"

#include <algorithm>

namespace assay::align {

bool decays(const Shape& parameter) {
  return parameter.size() > 1;
}

double clip_coefficient(const OptimizerSettings& o, double norm) {
  constexpr double eps = 1e-6;  // torch.nn.utils.clip_grad_norm_, Megatron-LM clip_grads.py
  return std::min(1.0, o.max_norm / (norm + eps));
}

Tensor scaled(const Tensor& t, double factor) {
  std::vector<double> values = t.values();
  for (double& x : values) x *= factor;
  return Tensor::from_values(t.dtype(), t.shape(), values);
}

Update adamw(const Arithmetic& arithmetic, const OptimizerSettings& o, std::int64_t step, bool decays,
             const Tensor& value, const OptimizerState& state, const Tensor& gradient) {
  Shape micro_batches = {1};
  micro_batches.insert(micro_batches.end(), gradient.shape().begin(), gradient.shape().end());
  const auto next = arithmetic.compute(find_operator("adamw"),
                                       std::vector<NamedTensor>{{"param", value},
                                                                {"grads", gradient.reshaped(micro_batches)},
                                                                {"exp_avg", state.exp_avg},
                                                                {"exp_avg_sq", state.exp_avg_sq}},
                                       {{"lr", o.lr},
                                        {"betas", std::vector<double>{o.beta1, o.beta2}},
                                        {"eps", o.eps},
                                        {"weight_decay", decays ? o.weight_decay : 0.0},
                                        {"step", step}});
  const auto closed = [&](std::string_view name) { return arithmetic.close(output_named(next, name)); };
  return {closed("param_1"), {closed("exp_avg_1"), closed("exp_avg_sq_1")}};
}

}  // namespace assay::align
