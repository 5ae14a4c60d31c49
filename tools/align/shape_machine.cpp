#include "assay/align/shape_machine.h"

namespace assay::align {

Value ShapeMachine::add(const Shape& shape, const std::string& parameter) {
  parameter_of_.push_back(parameter);
  return {parameter_of_.size() - 1, shape};
}

Value ShapeMachine::parameter(const std::string& name, const Shape& shape) {
  const auto known = known_.find(name);
  return known != known_.end() ? known->second : known_.emplace(name, add(shape, name)).first->second;
}

Value ShapeMachine::indices(const std::string&, const Shape& shape) {
  return add(shape, "");
}

Value ShapeMachine::view(const Value&, const Shape& shape) {
  return add(shape, "");
}

std::vector<NamedValue> ShapeMachine::call_all(const std::string& module, std::string_view name,
                                               const std::vector<NamedValue>& inputs,
                                               const Attributes& attributes) {
  const Operator& op = find_operator(name);
  const Attributes complete = complete_attributes(op, attributes);
  Call call = {module, &op, {}, attributes};
  std::vector<InputShape> shapes;
  for (const NamedValue& input : inputs) {
    call.inputs.push_back({input.name, input.value.shape, parameter_of_[input.value.id]});
    shapes.push_back({input.name, input.value.shape, nullptr});
  }
  const Dims dims = bind_dims(op, shapes, complete);
  std::vector<NamedValue> outputs;
  for (const Arg& arg : op.args) {
    if (arg.role != Role::output && arg.role != Role::output_index) continue;
    outputs.push_back({std::string(arg.name), add(shape_of(op, arg, dims, complete), "")});
  }
  calls.push_back(std::move(call));
  return outputs;
}

}  // namespace assay::align
