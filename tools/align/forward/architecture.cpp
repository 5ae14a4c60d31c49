#include "assay/align/forward/architecture.h"

#include <algorithm>
#include <map>
#include <utility>

namespace assay::align {
namespace {

// Rows in groups of equal size, but for one.
Tensor even_groups(std::int64_t rows, std::int64_t groups) {
  std::vector<std::int64_t> sizes(static_cast<std::size_t>(groups), rows / groups);
  for (std::int64_t k = 0; k < rows % groups; ++k) ++sizes[static_cast<std::size_t>(k)];
  return Tensor::from_indices({groups}, sizes);
}

}  // namespace

std::vector<ModuleCall> forward_calls(const Model& model, const Batch& batch) {
  ShapeMachine machine(Mesh({}, 0));
  forward(machine, model, batch, whole(model));
  std::map<std::size_t, std::string> parameter_of;
  for (const Machine::NamedParameter& p : machine.parameters()) parameter_of[p.value.id] = p.name;
  std::vector<ModuleCall> calls;
  for (const Machine::Node& node : machine.nodes()) {
    if (node.is_inside()) continue;
    ModuleCall call = {node.module, node.op, {}, node.attributes};
    for (const NamedValue& x : node.inputs) {
      const auto known = parameter_of.find(x.value.id);
      call.inputs.push_back({x.name, x.value.shape, known == parameter_of.end() ? "" : known->second});
    }
    calls.push_back(std::move(call));
  }
  return calls;
}

std::vector<Parameter> parameters(const Model& model) {
  std::vector<Parameter> all;
  for (const ModuleCall& call : forward_calls(model, {})) {
    for (const CallInput& input : call.inputs) {
      if (input.parameter.empty()) continue;
      const std::int64_t size = element_count(input.shape);
      const bool routed = input.parameter.find('*') != std::string::npos;
      const bool looked_up = call.op->name == "embedding";
      const std::int64_t met = routed      ? size / model.moe.experts * model.moe.top_k
                               : looked_up ? model.hidden
                                           : size;
      const auto known = std::ranges::find(all, input.parameter, &Parameter::name);
      if (known == all.end()) {
        all.push_back({input.parameter, input.shape, size, met});
      } else {
        known->met_by_token = std::max(known->met_by_token, met);
      }
    }
  }
  return all;
}

std::vector<Accumulation> accumulations(const ModuleCall& call) {
  std::vector<InputShape> inputs;
  Tensor groups;
  for (const CallInput& input : call.inputs) {
    const bool sizes = input.arg == "group_sizes";
    if (sizes) groups = even_groups(call.inputs.front().shape.front(), input.shape.front());
    inputs.push_back({input.arg, input.shape, sizes ? &groups : nullptr});
  }
  std::vector<Accumulation> counts;
  for (const Arg& arg : call.op->args) {
    const bool wanted = arg.role == Role::output || arg.role == Role::grad_input;
    const std::string_view of = arg.role == Role::grad_input ? arg.name.substr(5) : arg.name;
    const bool there = arg.role == Role::output || find_input(inputs, of) != nullptr;
    if (!wanted || !there || arg.terms.empty()) continue;
    const std::int64_t count = accumulation_count(*call.op, arg.name, inputs, call.attributes);
    if (count > 0) counts.push_back({std::string(arg.name), count});
  }
  return counts;
}

}  // namespace assay::align
