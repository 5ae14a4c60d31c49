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
  std::vector<std::byte> bytes(t.bytes().begin(), t.bytes().end());
  const auto scale = [&]<class T>(T* x) {
    for (std::int64_t i = 0; i < t.size(); ++i) x[i] = static_cast<T>(static_cast<double>(x[i]) * factor);
  };
  if (t.dtype() == DType::float32)
    scale(reinterpret_cast<float*>(bytes.data()));
  else
    scale(reinterpret_cast<double*>(bytes.data()));
  return {t.dtype(), t.shape(), std::move(bytes)};
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
