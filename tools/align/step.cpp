#include "assay/align/step.h"

#include <fmt/format.h>

#include <cmath>

#include "assay/align/initial.h"

namespace assay::align {
namespace {

constexpr std::string_view router_bias = "e_score_correction_bias";

// Megatron-LM: vectors do not decay.
bool decays(const Tensor& parameter) {
  return parameter.shape().size() > 1;
}

Tensor with_leading_one(const Tensor& t) {
  Shape shape = {1};
  shape.insert(shape.end(), t.shape().begin(), t.shape().end());
  return t.reshaped(shape);
}

}  // namespace

Tensor Replay::golden(std::string_view op, const std::vector<NamedTensor>& inputs,
                      const Attributes& attributes, std::string_view output) const {
  return output_named(compute_golden(find_operator(op), inputs, attributes, settings_.level), output);
}

double Replay::micro_batch(std::int64_t index, Gradients& gradients, Recorder* recorder) {
  Tape tape(
      settings_.level,
      [&](const std::string& name, const Shape& shape) {
        const auto known = parameters_.find(name);
        if (known != parameters_.end()) return known->second.value;
        const Tensor value = Tensor::from_values(dtype(), shape, initial_parameter(name, shape).values());
        return parameters_.emplace(name, Parameter{value, Tensor(dtype(), shape), Tensor(dtype(), shape)})
            .first->second.value;
      },
      [&](const std::string& name, const Shape&) {
        return initial_indices(name, settings_.batch, model_.vocabulary,
                               step_ * settings_.micro_batches + index);
      });
  const StepLosses losses = align::forward(tape, model_, settings_.batch);
  Tape::Watch watch;
  if (recorder != nullptr) {
    record_forward(tape, losses, index, *recorder);
    watch = [&](const auto& node, const auto& of_outputs, const auto& of_inputs) {
      recorder->backward(tape, node, of_outputs, of_inputs);
    };
  }
  tape.backward(losses.total, 1 / static_cast<double>(settings_.micro_batches), watch);
  accumulate(tape, gradients);
  add_loads(tape);
  return tape.tensor(losses.total).value(0);
}

void Replay::record_forward(const Tape& tape, const StepLosses& losses, std::int64_t index,
                            Recorder& recorder) const {
  recorder.begin(step_, index);
  for (const Tape::Node& node : tape.nodes()) recorder.forward(tape, node);
  recorder.loss("loss", tape.tensor(losses.total));
  recorder.loss("cross_entropy", tape.tensor(losses.cross_entropy));
  for (const NamedValue& other : losses.others) recorder.loss(other.name, tape.tensor(other.value));
}

void Replay::accumulate(const Tape& tape, Gradients& gradients) const {
  for (const auto& [name, value] : tape.parameters()) {
    const Tensor* gradient = tape.gradient(value);
    if (gradient == nullptr) continue;
    const auto [at, first] = gradients.try_emplace(name, *gradient);
    if (!first) at->second = golden("add", {{"a", at->second}, {"b", *gradient}}, {}, "y");
  }
}

// How many tokens each expert got, for the bias of its router.
void Replay::add_loads(const Tape& tape) {
  for (const Tape::Node& node : tape.nodes()) {
    if (node.op->name != "moe_permute") continue;
    const std::string bias = fmt::format("{}.gate.{}", node.module, router_bias);
    if (!parameters_.contains(bias)) continue;
    const Tensor& load = tape.tensor(value_named(node.outputs, "tokens_per_expert"));
    const auto [at, first] = loads_.try_emplace(bias, load);
    if (first) continue;
    std::vector<std::int64_t> sum = at->second.indices();
    const std::vector<std::int64_t> more = load.indices();
    for (std::size_t e = 0; e < sum.size(); ++e) sum[e] += more[e];
    at->second = Tensor::from_indices(load.shape(), sum);
  }
}

// The norm of all gradients; they become the clipped ones. In float64 whatever the level: one after the
// other, a million squares lose three digits in float32, which no device does, whose sums are trees.
double Replay::clip(Gradients& gradients) const {
  std::vector<NamedTensor> inputs;
  for (const auto& [name, gradient] : gradients)
    inputs.push_back({fmt::format("grad_{}", inputs.size()), gradient});
  const auto clipped = compute_golden(find_operator("clip_grad_norm"), inputs,
                                      {{"max_norm", settings_.optimizer.max_norm}}, Level::fp64);
  std::size_t k = 0;
  for (auto& [name, gradient] : gradients) {
    const Tensor& own = output_named(clipped, fmt::format("clipped_{}", k++));
    gradient = Tensor::from_values(dtype(), own.shape(), own.values());
  }
  return output_named(clipped, "norm").value(0);
}

void Replay::update(const Gradients& gradients) {
  const OptimizerSettings& o = settings_.optimizer;
  for (const auto& [name, gradient] : gradients) {
    Parameter& p = parameters_.at(name);
    const auto next = compute_golden(find_operator("adamw"),
                                     std::vector<NamedTensor>{{"param", p.value},
                                                              {"grads", with_leading_one(gradient)},
                                                              {"exp_avg", p.exp_avg},
                                                              {"exp_avg_sq", p.exp_avg_sq}},
                                     {{"lr", o.lr},
                                      {"betas", std::vector<double>{o.beta1, o.beta2}},
                                      {"eps", o.eps},
                                      {"weight_decay", decays(p.value) ? o.weight_decay : 0.0},
                                      {"step", step_}},
                                     settings_.level);
    p = {output_named(next, "param_1"), output_named(next, "exp_avg_1"), output_named(next, "exp_avg_sq_1")};
  }
}

// The bias of a router follows the load of its experts (facts A7): before the optimizer, and without
// gradient.
void Replay::balance() {
  for (const auto& [name, load] : loads_) {
    Tensor& bias = parameters_.at(name).value;
    bias = golden("expert_bias_update", {{"expert_bias", bias}, {"tokens_per_expert", load}},
                  {{"rate", model_.moe.bias_rate}}, "updated_bias");
  }
  loads_.clear();
}

StepResult Replay::step(Recorder* recorder) {
  Gradients gradients;
  StepResult result;
  for (std::int64_t k = 0; k < settings_.micro_batches; ++k)
    result.loss += micro_batch(k, gradients, recorder) / static_cast<double>(settings_.micro_batches);
  if (recorder != nullptr) {
    for (const auto& [name, p] : parameters_) recorder->parameter(Phase::forward, name, "param", "", p.value);
    for (const auto& [name, gradient] : gradients)
      recorder->parameter(Phase::backward, name, "grad", "", gradient);
  }
  balance();
  result.grad_norm = clip(gradients);
  update(gradients);
  if (recorder != nullptr) {
    for (const auto& [name, p] : parameters_) {
      recorder->parameter(Phase::optimizer, name, "param", "", p.value);
      if (!gradients.contains(name)) continue;
      recorder->parameter(Phase::optimizer, name, "state", "exp_avg", p.exp_avg);
      recorder->parameter(Phase::optimizer, name, "state", "exp_avg_sq", p.exp_avg_sq);
    }
  }
  ++step_;
  return result;
}

}  // namespace assay::align
