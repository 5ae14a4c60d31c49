#include "assay/compare/count.h"

#include <fmt/format.h>

#include <algorithm>

#include "assay/golden/error.h"
#include "assay/operators/golden.h"

namespace assay {
namespace {

std::string call_key(const Identity& id) {
  return fmt::format("{}/{}/{}/{}", id.step, id.micro_batch, id.call, id.module);
}
std::string module_key(const Identity& id) {
  return fmt::format("{}/{}", id.step, id.module);
}

// What the operator calls a recorded result. A matmul whose second operand is a parameter is a linear layer,
// y = x w^T, as PyTorch and Megatron store weights; the recorded name ("weight", "gate_weight") is then its
// w.
std::string output_name(const LogicalTensor& t, bool is_linear) {
  const Identity& id = t.id;
  if (is_linear) {
    if (id.slot == "output") return "y";
    if (id.slot == "grad_input") return "grad_x";
    return id.arg == "bias" ? "grad_b" : "grad_w";
  }
  if (id.slot == "grad_input" || id.slot == "grad") return "grad_" + id.arg;
  return id.arg;
}

std::optional<KnownCount> count_of_call(const Operator& op, const std::string& output, const Shape& shape,
                                        const std::vector<InputShape>& inputs) {
  try {
    // With default attributes; a result of another shape than these give was made with others.
    const Attributes attributes = complete_attributes(op, {});
    const auto arg = std::ranges::find(op.args, output, &Arg::name);
    const bool agrees =
        arg == op.args.end() || shape_of(op, *arg, bind_dims(op, inputs, attributes), attributes) == shape;
    if (!agrees) return std::nullopt;
    return KnownCount{accumulation_count(op, output, inputs, {}),
                      fmt::format("{} {} of the recorded shapes, default attributes", op.name, output)};
  } catch (const Error&) {
    return std::nullopt;  // recorded under names that are not the operator's: the count stays unknown
  }
}

// An optimizer's results are named after the step: param_1, param_2, ..
std::optional<KnownCount> optimizer_count(const LogicalTensor& t) {
  constexpr std::int64_t most_steps = std::int64_t{1} << 53;
  const Operator* op = t.op.empty() ? nullptr : known_operator(t.op);
  if (op == nullptr || t.id.step < 0 || t.id.step >= most_steps) return std::nullopt;
  Shape grads = {t.id.step + 1};
  grads.insert(grads.end(), t.shape.begin(), t.shape.end());
  const std::vector<InputShape> inputs = {{"param", t.shape, nullptr}, {"grads", grads, nullptr}};
  return count_of_call(*op, fmt::format("param_{}", t.id.step + 1), t.shape, inputs);
}

}  // namespace

CountOf::CountOf(const std::vector<LogicalTensor>& tensors) {
  for (const LogicalTensor& t : tensors) {
    if (t.id.slot == "param" && t.id.phase != Phase::optimizer) {
      params_[module_key(t.id)].push_back(&t);
    } else if (t.id.slot == "input" && !t.op.empty()) {
      calls_[call_key(t.id)].push_back(&t);
    }
  }
}

std::optional<KnownCount> CountOf::operator()(const LogicalTensor& t) const {
  if (t.count) return KnownCount{*t.count, "the dump"};
  if (t.id.phase == Phase::optimizer) return optimizer_count(t);
  const bool is_result =
      t.id.slot == "output" || t.id.slot == "grad_input" || (t.id.slot == "grad" && t.id.micro_batch >= 0);
  const Operator* op = t.op.empty() ? nullptr : known_operator(t.op);
  if (op == nullptr || !is_result) return std::nullopt;
  const auto call = calls_.find(call_key(t.id));
  if (call == calls_.end()) return std::nullopt;
  const auto params = params_.find(module_key(t.id));
  const bool is_linear = op->name == "matmul" && params != params_.end();
  std::vector<InputShape> inputs;
  for (const LogicalTensor* input : call->second) inputs.push_back({input->id.arg, input->shape, nullptr});
  if (is_linear) {
    op = known_operator("linear");
    if (op == nullptr || inputs.size() != 1) return std::nullopt;
    inputs.front().name = "x";
  }
  if (params != params_.end()) {
    for (const LogicalTensor* param : params->second) {
      const bool is_bias = param->id.arg == "bias";
      // Of a fused projection's weights one is enough: they share the input width.
      if (is_linear && !is_bias && inputs.back().name == "w") continue;
      inputs.push_back({!is_linear ? param->id.arg : is_bias ? "b" : "w", param->shape, nullptr});
    }
  }
  return count_of_call(*op, output_name(t, is_linear), t.shape, inputs);
}

}  // namespace assay
