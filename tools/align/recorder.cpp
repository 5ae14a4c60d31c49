#include "assay/align/recorder.h"

#include <algorithm>

namespace assay::align {
namespace {

constexpr std::array mesh_axes = {Axis::pp, Axis::dp, Axis::cp, Axis::tp};

// Only a copy of elements in another place, forward and backward, without indices that say where.
bool moves_only(const Operator& op) {
  return std::ranges::all_of(op.args, [](const Arg& arg) {
    const bool given = arg.role == Role::input || arg.role == Role::grad_output,
               made = arg.role == Role::output || arg.role == Role::grad_input;
    return given || (made && arg.exact == Exact::bits);
  });
}

// Parameters are recorded once in a step, and indices where they are made.
bool is_recorded_elsewhere(const Operator& op, std::string_view arg) {
  const Role role = input_arg(op, arg).role;
  return role == Role::param || (role == Role::index && op.name != "embedding" && op.name != "cross_entropy");
}

std::string without_grad(const std::string& name) {
  return name.substr(std::string_view("grad_").size());
}

Shape whole_shape(Shape shape, const Placement& placement, const Mesh& mesh) {
  for (const Axis axis : placed_axes) {
    const Placed& placed = placement[axis];
    if (placed.how == Placed::How::sharded) shape[placed.dim] *= mesh.size(axis);
  }
  return shape;
}

bool is_of_experts(const Value& v) {
  return std::ranges::any_of(expert_axes, [&](Axis axis) { return v.placement[axis] != replicated; });
}

// Of outputs and gradients, over all ranks; copies have none, and of experts no rank knows it.
std::optional<std::int64_t> count_of(const Tape& tape, const Machine::Node& node, const std::string& output) {
  if (output_arg(*node.op, output).terms.empty()) return std::nullopt;
  const bool has_own_extents = node.op->name == "expand";  // an attribute: of what this rank has
  std::vector<InputShape> inputs;
  for (const NamedValue& x : node.inputs) {
    if (is_of_experts(x.value)) return std::nullopt;
    if (x.name == "positions") continue;  // of this rank alone; nothing is counted by them
    const Shape& own = x.value.shape;
    inputs.push_back({x.name, has_own_extents ? own : whole_shape(own, x.value.placement, tape.mesh()),
                      &tape.tensor(x.value)});
  }
  return accumulation_count(*node.op, output, inputs, node.attributes);
}

// The sum of a value of which each rank has a share: what the movement behind it makes of it.
const Value& completed(const Tape& tape, const Value& v) {
  if (!v.placement.is_partial()) return v;
  for (const Machine::Node& node : tape.nodes()) {
    if (node.movement && node.inputs.front().value.id == v.id) return node.outputs.front().value;
  }
  return v;
}

}  // namespace

Manifest manifest_of(const Parallel& p, const std::string& producer) {
  Manifest manifest = {.world_size = static_cast<int>(p.ranks()), .mesh = {}, .producer = producer};
  const Mesh mesh(p, 0);
  for (const Axis axis : mesh_axes) {
    manifest.mesh.dims.emplace_back(name(axis));
    manifest.mesh.shape.push_back(mesh.size(axis));
  }
  return manifest;
}

void Recorder::begin(std::int64_t step, std::int64_t micro_batch, const Tape& tape) {
  step_ = step;
  micro_batch_ = micro_batch;
  call_of_.clear();
  std::map<std::string, std::int64_t> calls;
  for (const Machine::Node& node : tape.nodes()) {
    if (node.op != nullptr && !node.is_inside() && !moves_only(*node.op))
      call_of_[&node] = calls[node.module]++;
  }
}

Record Recorder::record(Identity id, const std::string& op, const Tensor& tensor) const {
  Record record;
  id.step = step_;
  record.id = std::move(id);
  record.rank = mesh_.rank();
  record.op = op;
  record.dtype = tensor.dtype();
  record.shape = record.global_shape = tensor.shape();
  return record;
}

void Recorder::lay_out(Record& record, const Placement& placement) const {
  record.global_shape = whole_shape(record.shape, placement, mesh_);
  const bool zigzag = mesh_.parallel().context == ContextMode::ring;
  for (const Axis axis : mesh_axes) {
    const Placed placed = axis == Axis::pp ? replicated : placement[axis];
    assay::Placement at;
    if (placed.how == Placed::How::sharded) {
      at.kind = assay::Placement::Kind::shard;
      at.dim = static_cast<int>(placed.dim);
      at.zigzag = axis == Axis::cp && zigzag;
    } else if (placed == partial) {
      at.kind = assay::Placement::Kind::partial;
    }
    record.placements.push_back(at);
    record.mesh_coordinate.push_back(mesh_.coordinate(axis));
  }
}

void Recorder::add(Record record, const Tensor& tensor) {
  record.seq = seq_++;
  sink_.add(record, tensor);
}

void Recorder::forward(const Tape& tape) {
  for (const Machine::Node& node : tape.nodes()) {
    if (call_of_.contains(&node)) forward(tape, node);
  }
}

void Recorder::forward(const Tape& tape, const Machine::Node& node) {
  const auto add_value = [&](const char* slot, const std::string& arg, const Value& v,
                             std::optional<std::int64_t> count) {
    if (is_of_experts(v) || v.placement.is_partial()) return;
    Record r = record({step_, micro_batch_, Phase::forward, node.module, slot, arg, call_of_.at(&node)},
                      std::string(node.op->name), tape.tensor(v));
    r.count = count;
    lay_out(r, v.placement);
    add(std::move(r), tape.tensor(v));
  };
  for (const NamedValue& x : node.inputs) {
    if (!is_recorded_elsewhere(*node.op, x.name)) add_value("input", x.name, x.value, {});
  }
  for (const NamedValue& y : node.outputs)
    add_value("output", y.name, completed(tape, y.value), count_of(tape, node, y.name));
}

void Recorder::backward(const Tape& tape, const Machine::Node& node,
                        const std::vector<NamedTensor>& of_outputs,
                        const std::vector<NamedTensor>& of_inputs) {
  const auto known = call_of_.find(&node);
  if (known == call_of_.end()) return;
  const auto add_gradient = [&](const char* slot, const std::string& grad, const Value& of,
                                const Tensor& gradient, std::optional<std::int64_t> count) {
    const Placement& placement = tape.gradient_placement(of);
    // Exact shares of a sum are not rounded, and their sum is not known here.
    if (is_of_experts(of) || (placement.is_partial() && tape.rounds_at_the_end())) return;
    Record r =
        record({step_, micro_batch_, Phase::backward, node.module, slot, without_grad(grad), known->second},
               std::string(node.op->name), gradient);
    r.count = count;
    lay_out(r, placement);
    add(std::move(r), gradient);
  };
  for (const NamedTensor& g : of_outputs)
    add_gradient("grad_output", g.name, output_of(node.outputs, input_arg(*node.op, g.name)), g.tensor, {});
  for (const NamedTensor& g : of_inputs) {
    if (!is_recorded_elsewhere(*node.op, without_grad(g.name)))
      add_gradient("grad_input", g.name, value_named(node.inputs, without_grad(g.name)), g.tensor,
                   count_of(tape, node, g.name));
  }
}

void Recorder::parameter(const OfParameter& what, const std::string& name, const PlannedParameter& planned,
                         const Tensor& tensor) {
  const std::size_t dot = name.rfind('.');
  const std::string arg = name.substr(dot + 1);
  Record r = record({step_, -1, what.phase, name.substr(0, dot), what.slot,
                     what.state.empty() ? arg : arg + "." + what.state, 0},
                    "", tensor);
  r.global_shape = planned.whole;
  r.offsets = Shape(tensor.shape().size());
  for (const Sharding& s : planned.shardings)
    (*r.offsets)[s.placed.dim] = mesh_.coordinate(s.axis) * tensor.shape()[s.placed.dim];
  add(std::move(r), tensor);
}

void Recorder::loss(const std::string& name, const Tensor& tensor) {
  Record r = record({step_, micro_batch_, Phase::forward, name, "loss", "loss", 0}, "", tensor);
  lay_out(r, {});
  add(std::move(r), tensor);
}

}  // namespace assay::align
