#include "assay/align/placement/machine.h"

#include <algorithm>

#include "assay/align/placement/placement_rules.h"
#include "assay/golden/error.h"

namespace assay::align {
namespace {

using Placements = std::vector<std::optional<MeshPlacement>>;

MeshPlacement placement_of(const std::vector<Sharding>& shardings, const Mesh& mesh) {
  MeshPlacement placement;
  for (const Sharding& s : shardings) {
    if (mesh.size(s.axis) > 1) placement[s.axis] = s.placed;
  }
  return placement;
}

void add_gradient(Placements& all, const Value& v, const MeshPlacement& more, const std::string& module) {
  std::optional<MeshPlacement>& known = all[v.id];
  if (known && *known != more)
    throw Error("{}: gradients of one tensor are added up, one of them {}, the other {}", module,
                to_string(*known), to_string(more));
  known = more;
}

}  // namespace

const Value& value_named(const std::vector<NamedValue>& values, std::string_view name) {
  const auto at = std::ranges::find(values, name, &NamedValue::name);
  if (at == values.end())
    throw Error("there is no output '{}'; this call's first is '{}'", name, values.front().name);
  return at->value;
}

const Value& output_of(const std::vector<NamedValue>& outputs, const Arg& gradient) {
  const auto named = std::ranges::find(outputs, gradient.name.substr(5), &NamedValue::name);
  return named == outputs.end() ? outputs.front().value : named->value;
}

Shape local_shape(Shape whole, const std::vector<Sharding>& shardings, const Mesh& mesh,
                  const std::string& name) {
  for (const Sharding& s : shardings) {
    std::int64_t& extent = whole[s.placed.dim];
    if (extent % mesh.size(s.axis) != 0)
      throw Error("{}: dim {} of {} elements does not divide over {} ranks of {}", name, s.placed.dim, extent,
                  mesh.size(s.axis), align::name(s.axis));
    extent /= mesh.size(s.axis);
  }
  return whole;
}

Value Machine::add(const Shape& shape, const MeshPlacement& placement) {
  return {values_++, shape, placement};
}

Value Machine::parameter(const std::string& name, const Shape& whole,
                         const std::vector<Sharding>& shardings) {
  const auto [at, is_new] = known_.try_emplace(name, parameters_.size());
  if (!is_new) return parameters_[at->second].value;
  const Value value = add(local_shape(whole, shardings, mesh_, name), placement_of(shardings, mesh_));
  parameters_.push_back({name, value, whole, shardings});
  hold_parameter(parameters_.back());
  return value;
}

Value Machine::indices(const std::string& name, const Shape& shape, const std::vector<Sharding>& shardings) {
  return add(hold_indices(name, shape), placement_of(shardings, mesh_));
}

std::int64_t Machine::number(const Value& scalar, std::int64_t guess) const {
  return known(scalar).value_or(guess);
}

Value Machine::view(const Value& v, const Shape& shape) {
  hold_view(v, shape);
  return add(shape, v.placement);
}

Value Machine::derive(const std::vector<Value>& inputs, const Shape& shape, const MeshPlacement& placement,
                      const Formula& formula, bool real) {
  return add(hold_derived(inputs, shape, formula, real), placement);
}

std::vector<NamedValue> Machine::call_all(const std::string& module, std::string_view op,
                                          const std::vector<NamedValue>& inputs, const Attributes& attributes,
                                          const std::vector<Sharding>& declared) {
  Node node = {.module = module, .op = &find_operator(op), .attributes = attributes, .inputs = inputs};
  node.outputs = hold_call(node);
  std::vector<Sharding> known;
  for (const Sharding& s : declared) {
    if (mesh_.size(s.axis) > 1) known.push_back(s);
  }
  place_outputs(module, *node.op, inputs, attributes, known, node.outputs);
  for (const NamedValue& y : node.outputs) placed(y.value);
  nodes_.push_back(std::move(node));
  return nodes_.back().outputs;
}

void Machine::declare(std::size_t first, const std::string& module, std::string_view op,
                      const std::vector<NamedValue>& inputs, const Attributes& attributes,
                      const std::vector<NamedValue>& outputs) {
  nodes_.insert(nodes_.begin() + static_cast<std::ptrdiff_t>(first), {.kind = Node::Kind::whole,
                                                                      .module = module,
                                                                      .op = &find_operator(op),
                                                                      .attributes = attributes,
                                                                      .inputs = inputs,
                                                                      .outputs = outputs});
}

Value Machine::finish(Node node, const Shape& shape, const MeshPlacement& placement) {
  const Value y = add(shape, placement);
  node.outputs.push_back({"y", y});
  placed(y);
  nodes_.push_back(std::move(node));
  return y;
}

Value Machine::move(const std::string& module, const Movement& movement, const Value& x) {
  const bool alone = ranks_of(movement, mesh_).size() == 1;
  if (alone) return x;
  Node node = {.kind = Node::Kind::movement, .module = module, .movement = movement, .inputs = {{"x", x}}};
  MeshPlacement placement = x.placement;
  try {
    placement[movement.axis] = moved(movement, x.placement[movement.axis]);
  } catch (const Error& e) {
    throw Error("{}: {}", module, e.what());
  }
  const Shape shape = hold_moved(node);
  return finish(std::move(node), shape, placement);
}

Value Machine::retype(const std::string& module, const Value& x, const MeshPlacement& placement) {
  if (x.placement == placement) return x;
  Node node = {.kind = Node::Kind::retype, .module = module, .inputs = {{"x", x}}};
  const Shape shape = hold_moved(node);
  return finish(std::move(node), shape, placement);
}

Value Machine::exchange_rows(const std::string& module, const Value& rows, const Value& give,
                             const Value& take) {
  if (mesh_.node_group().size() == 1) return rows;
  Node node = {.kind = Node::Kind::exchange,
               .module = module,
               .inputs = {{"x", rows}, {"give", give}, {"take", take}}};
  const Shape shape = hold_moved(node);
  return finish(std::move(node), shape, rows.placement);
}

Value Machine::sum_of_neighbours(const std::string& module, const Value& counts, std::int64_t ranks) {
  if (ranks == 1) return counts;
  hold_sum(module, counts, mesh_.neighbours(Axis::dp, ranks));
  return add(counts.shape, counts.placement);
}

void Machine::place_gradients_of(const Node& node, Placements& all) const {
  switch (node.kind) {
    case Node::Kind::whole:
      break;
    case Node::Kind::call:
      place_gradients_of_call(node, all);
      break;
    case Node::Kind::movement:
    case Node::Kind::retype:
    case Node::Kind::exchange:
      const Value &x = node.inputs.front().value, &y = node.outputs.front().value;
      if (all[y.id]) add_gradient(all, x, back(node, *all[y.id]), node.module);
  }
}

// From what came out of a movement to what went in.
MeshPlacement Machine::back(const Node& node, MeshPlacement placement) const {
  const Value &x = node.inputs.front().value, &y = node.outputs.front().value;
  if (node.kind == Node::Kind::retype) {
    if (placement == y.placement) return x.placement;
    throw Error("{}: the gradient is {}; expected {}, as the tensor is", node.module, to_string(placement),
                to_string(y.placement));
  }
  if (node.kind == Node::Kind::exchange) return placement;
  Placed& placed = placement[node.movement->axis];
  try {
    const std::optional<Movement> adjoint = align::adjoint(*node.movement, placed);
    if (adjoint) placed = moved(*adjoint, placed);
  } catch (const Error& e) {
    throw Error("{}: {}", node.module, e.what());
  }
  return placement;
}

void Machine::place_gradients_of_call(const Node& node, Placements& all) const {
  std::vector<PlacedGradient> of_outputs;
  for (const Arg& arg : node.op->args) {
    if (arg.role != Role::grad_output) continue;
    const Value& y = output_of(node.outputs, arg);
    const auto named = std::ranges::find(node.outputs, y.id, [](const NamedValue& v) { return v.value.id; });
    if (all[y.id]) of_outputs.push_back({named->name, *all[y.id]});
  }
  if (of_outputs.empty()) return;
  const auto gradients = place_gradients(*node.op, node.inputs, node.outputs, node.attributes, of_outputs);
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    const Role role = input_arg(*node.op, node.inputs[i].name).role;
    if (role == Role::input || role == Role::param)
      add_gradient(all, node.inputs[i].value, gradients[i].placement, node.module);
  }
}

Placements Machine::gradient_placements(const std::vector<Value>& of) const {
  Placements all(values_);
  for (const Value& v : of) all[v.id] = v.placement;
  for (auto node = nodes_.rbegin(); node != nodes_.rend(); ++node) place_gradients_of(*node, all);
  return all;
}

}  // namespace assay::align
