#include "assay/align/placement/shape_machine.h"

namespace assay::align {

std::vector<NamedValue> ShapeMachine::hold_call(const Node& node) {
  const Attributes complete = complete_attributes(*node.op, node.attributes);
  std::vector<InputShape> shapes;
  for (const NamedValue& input : node.inputs) shapes.push_back({input.name, input.value.shape, nullptr});
  const Dims dims = bind_dims(*node.op, shapes, complete);
  std::vector<NamedValue> outputs;
  for (const Arg& arg : node.op->args) {
    if (arg.role != Role::output && arg.role != Role::output_index) continue;
    outputs.push_back({std::string(arg.name), add(shape_of(*node.op, arg, dims, complete))});
  }
  return outputs;
}

Shape ShapeMachine::hold_moved(const Node& node) {
  const Shape& shape = node.inputs.front().value.shape;
  if (node.kind != Node::Kind::movement) return shape;  // as many rows as were given
  const std::size_t ranks = ranks_of(*node.movement, mesh()).size();
  return moved_shape(*node.movement, shape, static_cast<std::int64_t>(ranks));
}

}  // namespace assay::align
