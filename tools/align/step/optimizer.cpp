#include "assay/align/step/optimizer.h"

#include "assay/align/arithmetic/pieces.h"

namespace assay::align {
namespace {

// A state of the golden operators, before and after one step.
struct StateName {
  std::string_view before, after;
};
constexpr StateName of_adam[] = {{"exp_avg", "exp_avg_1"}, {"exp_avg_sq", "exp_avg_sq_1"}};
constexpr StateName of_muon[] = {{"momentum_buffer", "momentum_1"}};

std::span<const StateName> state_names(bool by_muon) {
  return by_muon ? std::span<const StateName>(of_muon) : std::span<const StateName>(of_adam);
}

// The golden optimizers take the gradients of steps in a row; here of one.
Update step_of(const Arithmetic& arithmetic, std::string_view op, bool by_muon, const Attributes& attributes,
               const Current& of) {
  Shape steps = {1};
  steps.insert(steps.end(), of.gradient.shape().begin(), of.gradient.shape().end());
  std::vector<NamedTensor> inputs = of.state;
  inputs.push_back({"param", of.value});
  inputs.push_back({"grads", of.gradient.reshaped(steps)});
  const auto next = arithmetic.compute("", find_operator(op), inputs, attributes);
  Update update = {arithmetic.close(output_named(next, "param_1")), {}};
  for (const StateName& name : state_names(by_muon))
    update.state.push_back({std::string(name.before), arithmetic.close(output_named(next, name.after))});
  return update;
}

double decay_of(const OptimizerSettings& o, const Current& of) {
  return of.decays ? o.weight_decay : 0.0;
}

// Matrix k of a tensor [n, rows, columns].
Tensor matrix(const Tensor& t, std::int64_t k) {
  return piece(t, 0, k, k + 1).reshaped({t.shape()[1], t.shape()[2]});
}

Tensor stacked(const std::vector<Tensor>& matrices, const Shape& shape) {
  return joined(matrices, 0).reshaped(shape);
}

}  // namespace

OptimizerState initial_state(bool by_muon, DType dtype, const Shape& shape) {
  OptimizerState state;
  for (const StateName& name : state_names(by_muon))
    state.push_back({std::string(name.before), Tensor(dtype, shape)});
  return state;
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

// adamw and torch_adamw, adam_l2 and torch_adam differ only in the order of their roundings.
Update adam(const Arithmetic& arithmetic, const OptimizerSettings& o, std::int64_t step, const Current& of) {
  const bool l2 = o.name == OptimizerName::adam_l2 || o.name == OptimizerName::torch_adam;
  return step_of(arithmetic, l2 ? "adam" : "adamw", false,
                 {{"lr", o.lr},
                  {"betas", std::vector<double>{o.beta1, o.beta2}},
                  {"eps", o.eps},
                  {"weight_decay", decay_of(o, of)},
                  {"step", step},
                  {"bias_correction", o.name != OptimizerName::mindspore_adamw},
                  {"eps_placement", o.name == OptimizerName::eps_hat ? "hat" : "outside"}},
                 of);
}

// Moonlight (arXiv 2502.16982, section 2.2): the buffer is a sum, and the update has AdamW's size.
Update muon(const Arithmetic& arithmetic, const OptimizerSettings& o, const Current& of) {
  const Attributes attributes = {
      {"lr", o.lr},      {"weight_decay", decay_of(o, of)}, {"momentum", o.momentum},
      {"dampening", 0.}, {"scale", "sqrt_max_rows_cols"},   {"scale_factor", 0.2}};
  const Shape& shape = of.value.shape();
  if (shape.size() == 2) return step_of(arithmetic, "muon", true, attributes, of);
  std::vector<Tensor> values, buffers;
  for (std::int64_t k = 0; k < shape.front(); ++k) {
    const OptimizerState buffer = {{of.state.front().name, matrix(of.state.front().tensor, k)}};
    const Tensor value = matrix(of.value, k), gradient = matrix(of.gradient, k);
    Update next = step_of(arithmetic, "muon", true, attributes, {value, buffer, gradient, of.decays});
    values.push_back(std::move(next.value));
    buffers.push_back(std::move(next.state.front().tensor));
  }
  return {stacked(values, shape), {{of.state.front().name, stacked(buffers, shape)}}};
}

}  // namespace assay::align
