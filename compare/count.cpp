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

// An optimizer's results are named after the step: param_1, param_2, ..
std::optional<KnownCount> optimizer_count(const LogicalTensor& t) {
  const Operator* op = t.op.empty() ? nullptr : known_operator(t.op);
  if (op == nullptr || std::ranges::find(op->args, "param_#", &Arg::name) == op->args.end())
    return std::nullopt;
  const std::string output = fmt::format("param_{}", t.id.step + 1);
  return KnownCount{accumulation_count(*op, output, Dims()), fmt::format("{} {}", op->name, output)};
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
  try {
    const std::string output = output_name(t, is_linear);
    const std::int64_t count = accumulation_count(*op, output, inputs, {});
    return KnownCount{count, fmt::format("{} {} of the recorded shapes", op->name, output)};
  } catch (const Error&) {
    return std::nullopt;  // recorded under names that are not the operator's: the count stays unknown
  }
}

}  // namespace assay
