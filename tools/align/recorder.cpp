#include "assay/align/recorder.h"

#include <algorithm>

namespace assay::align {
namespace {

// Only a copy of elements in another place, forward and backward, without indices that say where.
bool moves_only(const Operator& op) {
  return std::ranges::all_of(op.args, [](const Arg& arg) {
    const bool given = arg.role == Role::input || arg.role == Role::grad_output,
               made = arg.role == Role::output || arg.role == Role::grad_input;
    return given || (made && arg.exact == Exact::bits);
  });
}

bool is_parameter(const Operator& op, std::string_view arg) {
  return input_arg(op, arg).role == Role::param;
}

std::string without_grad(const std::string& name) {
  return name.substr(std::string_view("grad_").size());
}

// Of outputs and gradients; copies have none.
std::optional<std::int64_t> count_of(const Tape& tape, const Tape::Node& node, const std::string& output) {
  if (output_arg(*node.op, output).terms.empty()) return std::nullopt;
  std::vector<InputShape> inputs;
  for (const NamedValue& input : node.inputs)
    inputs.push_back({input.name, input.value.shape, &tape.tensor(input.value)});
  return accumulation_count(*node.op, output, inputs, node.attributes);
}

}  // namespace

Recorder::Recorder(const std::filesystem::path& folder, const std::string& producer)
    : writer_(folder, Manifest{.world_size = 1, .mesh = {}, .producer = producer}) {}

void Recorder::begin(std::int64_t step, std::int64_t micro_batch) {
  step_ = step;
  micro_batch_ = micro_batch;
  forward_calls_.clear();
  call_of_.clear();
}

void Recorder::add(Identity id, const std::string& op, const Tensor& tensor,
                   std::optional<std::int64_t> count) {
  Record record;
  id.step = step_;
  record.id = std::move(id);
  record.seq = seq_++;
  record.op = op;
  record.count = count;
  record.dtype = tensor.dtype();
  record.shape = record.global_shape = tensor.shape();
  writer_.add(record, tensor);
}

void Recorder::forward(const Tape& tape, const Tape::Node& node) {
  if (moves_only(*node.op)) return;
  const std::int64_t call = call_of_[&node] = forward_calls_[node.module]++;
  const std::string op(node.op->name);
  const auto identity = [&](const char* slot, const std::string& arg) {
    return Identity{step_, micro_batch_, Phase::forward, node.module, slot, arg, call};
  };
  for (const NamedValue& input : node.inputs) {
    if (!is_parameter(*node.op, input.name)) add(identity("input", input.name), op, tape.tensor(input.value));
  }
  for (const NamedValue& output : node.outputs)
    add(identity("output", output.name), op, tape.tensor(output.value), count_of(tape, node, output.name));
}

void Recorder::backward(const Tape& tape, const Tape::Node& node, const std::vector<NamedTensor>& of_outputs,
                        const std::vector<NamedTensor>& of_inputs) {
  const auto known = call_of_.find(&node);
  if (known == call_of_.end()) return;
  const std::string op(node.op->name);
  const auto identity = [&](const char* slot, const std::string& name) {
    return Identity{step_, micro_batch_,       Phase::backward, node.module,
                    slot,  without_grad(name), known->second};
  };
  for (const NamedTensor& g : of_outputs) add(identity("grad_output", g.name), op, g.tensor);
  for (const NamedTensor& g : of_inputs) {
    if (!is_parameter(*node.op, without_grad(g.name)))
      add(identity("grad_input", g.name), op, g.tensor, count_of(tape, node, g.name));
  }
}

void Recorder::parameter(Phase phase, const std::string& name, const std::string& slot,
                         const std::string& state, const Tensor& tensor) {
  const std::size_t dot = name.rfind('.');
  const std::string arg = name.substr(dot + 1);
  add({step_, -1, phase, name.substr(0, dot), slot, state.empty() ? arg : arg + "." + state, 0}, "", tensor);
}

void Recorder::loss(const std::string& name, const Tensor& tensor) {
  add({step_, micro_batch_, Phase::forward, name, "loss", "loss", 0}, "", tensor);
}

}  // namespace assay::align
