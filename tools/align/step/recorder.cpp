#include "assay/align/step/recorder.h"

#include <fmt/format.h>

#include <algorithm>

#include "assay/align/arithmetic/pieces.h"
#include "assay/golden/error.h"

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

template <class Axes>
Shape whole_shape(Shape shape, const MeshPlacement& placement, const Mesh& mesh, const Axes& axes) {
  for (const Axis axis : axes) {
    const Placed& placed = placement[axis];
    if (placed.how == Placed::How::sharded) shape[placed.dim] *= mesh.size(axis);
  }
  return shape;
}

// What it computes with are rows of experts, tokens on their way to them or back, and numbers of these.
bool is_of_rows(const Machine::Node& node) {
  constexpr std::array on_the_way = {"moe_permute", "moe_unpermute", "index_select"};
  return is_at_experts(node.module) || std::ranges::find(on_the_way, node.op->name) != on_the_way.end();
}

// What cuts the columns of experts' matrices.
constexpr std::array expert_columns = {Axis::etp};

// Of outputs and gradients, over all ranks; copies have none. No row of experts is a sum over others.
std::optional<std::int64_t> count_of(const Tape& tape, const Machine::Node& node, const std::string& output) {
  if (output_arg(*node.op, output).terms.empty()) return std::nullopt;
  const bool has_own_extents = node.op->name == "expand";  // an attribute: of what this rank has
  std::vector<InputShape> inputs;
  for (const NamedValue& x : node.inputs) {
    if (x.name == "positions") continue;  // of this rank alone; nothing is counted by them
    const Value& v = x.value;
    const Shape shape = has_own_extents    ? v.shape
                        : is_of_rows(node) ? whole_shape(v.shape, v.placement, tape.mesh(), expert_columns)
                                           : whole_shape(v.shape, v.placement, tape.mesh(), placed_axes);
    inputs.push_back({x.name, shape, &tape.tensor(v)});
  }
  return accumulation_count(*node.op, output, inputs, node.attributes);
}

// The weight of another module: an input of this one, so that its call is known by itself.
bool is_of_another(const Tape& tape, const Machine::Node& node, const Value& v) {
  const auto p = std::ranges::find(tape.parameters(), v.id, [](const auto& known) { return known.value.id; });
  return p != tape.parameters().end() && p->name.substr(0, p->name.rfind('.')) != node.module;
}

// The sum of a value of which each rank has a share: what the movement behind it makes of it.
const Value& completed(const Tape& tape, const Value& v) {
  if (!v.placement.is_partial()) return v;
  for (const Machine::Node& node : tape.nodes()) {
    if (node.kind == Machine::Node::Kind::movement && node.inputs.front().value.id == v.id)
      return node.outputs.front().value;
  }
  return v;
}

}  // namespace

std::optional<std::vector<Axis>> shares_along(const PlannedParameter& planned, const Parallel& p) {
  const auto is_of_mesh = [](Axis axis) { return std::ranges::find(mesh_axes, axis) != mesh_axes.end(); };
  if (std::ranges::all_of(planned.summed_over, is_of_mesh)) return planned.summed_over;
  // Where the ranks of a micro-batch have all experts between them, those of dp have the same.
  const bool along_dp = planned.summed_over == std::vector{Axis::edp} && p.etp * p.ep == p.tp * p.cp;
  return along_dp ? std::optional(std::vector{Axis::dp}) : std::nullopt;
}

Manifest manifest_of(const Parallel& p, const std::string& producer) {
  Manifest manifest = {.world_size = static_cast<int>(p.ranks()), .mesh = {}, .producer = producer};
  const Mesh mesh(p, 0);
  for (const Axis axis : mesh_axes) {
    manifest.mesh.dims.emplace_back(name(axis));
    manifest.mesh.shape.push_back(mesh.size(axis));
  }
  return manifest;
}

void Recorder::begin(std::int64_t step, std::int64_t micro_batch, const Tape& tape,
                     const std::map<std::string, ExpertRows>& rows) {
  if (!waiting_.empty())
    throw Error("{}: the gradient of tokens has not come back", waiting_.front().what.node->module);
  step_ = step;
  micro_batch_ = micro_batch;
  rows_ = &rows;
  call_of_.clear();
  has_rotary_tables_ = false;
  std::map<std::string, std::int64_t> calls;
  std::map<std::string, const Machine::Node*> layers;
  for (const Machine::Node& node : tape.nodes()) {
    if (node.op == nullptr || node.is_inside() || moves_only(*node.op)) continue;
    if (is_layer(node.module))
      layers[node.module] = &node;
    else
      call_of_[&node] = calls[module_of(node)]++;
    if (node.op->name == "add") has_sum_.insert(node.module);
  }
  for (const auto& [module, last] : layers) call_of_[last] = 0;
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

void Recorder::lay_out(Record& record, const MeshPlacement& placement) const {
  record.global_shape = whole_shape(record.shape, placement, mesh_, placed_axes);
  const bool zigzag = mesh_.parallel().context == ContextMode::ring;
  for (const Axis axis : mesh_axes) {
    const Placed placed = axis == Axis::pp ? replicated : placement[axis];
    Placement at;
    if (placed.how == Placed::How::sharded) {
      at.kind = Placement::Kind::shard;
      at.dim = static_cast<int>(placed.dim);
      at.zigzag = axis == Axis::cp && zigzag;
      // Heads are cut by tp first, then by Ulysses; tokens by cp first.
      const bool of_heads = placed.dim > 0 && placed == placement[Axis::tp];
      if (axis == Axis::cp && of_heads) at.split_factor = mesh_.size(Axis::tp);
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

Record Recorder::record(const OfCall& what, const Tensor& tensor) const {
  Record r = record(
      {step_, micro_batch_, what.phase, module_of(*what.node), what.slot, what.arg, call_of_.at(what.node)},
      is_layer(what.node->module) ? "" : std::string(what.node->op->name), tensor);
  r.count = what.count;
  r.within = is_within(what);
  return r;
}

void Recorder::add(const OfCall& what, const Tensor& tensor, const MeshPlacement& placement) {
  const bool is_reshaped = is_of_sequences(what, tensor);
  const Tensor recorded = is_reshaped ? of_sequences(tensor) : tensor;
  MeshPlacement placed = placement;
  for (const Axis axis : is_reshaped ? std::span(mesh_axes) : std::span<const Axis>()) {
    if (placement[axis].how == Placed::How::sharded)
      placed = placed.with(axis, sharded(placement[axis].dim + 1));
  }
  Record r = record(what, recorded);
  lay_out(r, placed);
  add(std::move(r), recorded);
  add_of_module(what, tensor);
}

// Nothing for what has no rows, and on a single device.
const ExpertRows* Recorder::rows_of(const Machine::Node& node) const {
  const auto at = rows_->find(layer_of_experts(node.module));
  return at == rows_->end() || !is_of_rows(node) ? nullptr : &at->second;
}

// A record for each run of rows: boxes need no list of rows.
void Recorder::add_rows(const OfCall& what, const Tensor& tensor, const MeshPlacement& placement) {
  const ExpertRows& rows = *rows_of(*what.node);
  for (const RowRun& run : is_at_experts(what.node->module) ? rows.held : rows.sent) {
    const Tensor part = selected_rows(tensor, run.here);
    Record r = record(what, part);
    r.id.micro_batch = run.micro_batch;
    r.global_shape = whole_shape(r.shape, placement, mesh_, expert_columns);
    r.global_shape[0] = run.all;
    r.offsets = Shape(r.shape.size());
    (*r.offsets)[0] = run.first;
    for (std::size_t d = 1; d < r.shape.size(); ++d) {
      if (placement[Axis::etp] == sharded(d)) (*r.offsets)[d] = mesh_.coordinate(Axis::etp) * r.shape[d];
    }
    add(std::move(r), part);
  }
}

void Recorder::add_tokens(const OfCall& what, const Tensor& tensor, const DenseTokens& tokens,
                          const Value& of) {
  const bool is_flat = of.shape.size() == 1;
  add(what, is_flat ? tensor.reshaped({tensor.size()}) : tensor, tokens.value.placement);
}

void Recorder::forward(const Tape& tape, const OfCall& what, const Value& v) {
  const bool is_output = what.slot == std::string_view("output");
  const ExpertRows* rows = rows_of(*what.node);
  const bool is_index = is_output && output_arg(*what.node->op, what.arg).role == Role::output_index;
  if (rows != nullptr && is_index)
    return add(what, what.arg == "sorted_index" ? rows->sorted_index : rows->tokens_per_expert, {});
  const auto tokens = rows == nullptr ? std::nullopt
                      : is_output     ? behind_experts(tape, v)
                                      : before_experts(tape, v);
  const Value& whole = is_output ? completed(tape, v) : v;
  if (tokens)
    add_tokens(what, tape.tensor(tokens->value), *tokens, v);
  else if (rows != nullptr)
    add_rows(what, tape.tensor(whole), whole.placement);
  else if (!whole.placement.is_partial())
    add(what, tape.tensor(whole), whole.placement);
}

void Recorder::forward(const Tape& tape, const Machine::Node& node) {
  if (batch_.batch_first && node.op->name == "rope" && !has_rotary_tables_) add_rotary_tables(tape, node);
  for (const NamedValue& x : is_layer(node.module) ? std::vector<NamedValue>() : node.inputs) {
    const OfCall what = {&node, Phase::forward, "input", x.name, {}};
    if (!is_recorded_elsewhere(*node.op, x.name) || is_of_another(tape, node, x.value))
      forward(tape, what, x.value);
    else if (input_arg(*node.op, x.name).role == Role::index)
      add_of_module(what, tape.tensor(x.value));
  }
  for (const NamedValue& y : node.outputs)
    forward(tape, {&node, Phase::forward, "output", y.name, count_of(tape, node, y.name)}, y.value);
}

void Recorder::backward(const Tape& tape, const Machine::Node& node,
                        const std::vector<NamedTensor>& of_outputs,
                        const std::vector<NamedTensor>& open_of_inputs) {
  if (node.kind == Machine::Node::Kind::retype) return backward_of_tokens(node, of_outputs.front().tensor);
  if (!call_of_.contains(&node)) return;
  const bool has_rows = rows_of(node) != nullptr;
  const auto place = [&](const OfCall& what, const Value& of, const Tensor& gradient) {
    const MeshPlacement& placement = tape.gradient_placement(of);
    if (has_rows)
      add_rows(what, gradient, placement);
    else
      add(what, gradient, placement);
  };
  const auto complete = [&](const NamedTensor& g, const Value& of, const Tensor& open) {
    return tape.complete(fmt::format("{} of {}", g.name, node.module), open, tape.gradient_placement(of));
  };
  for (const NamedTensor& g : of_outputs) {
    const OfCall what = {&node, Phase::backward, "grad_output", without_grad(g.name), {}};
    const Value& y = output_of(node.outputs, input_arg(*node.op, g.name));
    if (const auto tokens = has_rows ? behind_experts(tape, y) : std::nullopt)
      add_tokens(what, tape.gradient(tokens->value).value(), *tokens, y);
    else if (tape.gradient_placement(y).is_partial())
      place(what, y, complete(g, y, tape.open_gradient(y).value()));
    else
      place(what, y, g.tensor);
  }
  if (is_layer(node.module)) return;
  for (const NamedTensor& g : open_of_inputs) {
    const std::string arg = without_grad(g.name);
    if (is_recorded_elsewhere(*node.op, arg)) continue;
    const OfCall what = {&node, Phase::backward, "grad_input", arg, count_of(tape, node, g.name)};
    const Value& x = value_named(node.inputs, arg);
    if (const auto tokens = has_rows ? before_experts(tape, x) : std::nullopt)
      waiting_.push_back({what, *tokens, x});
    else
      place(what, x, complete(g, x, g.tensor));
  }
}

void Recorder::backward_of_tokens(const Machine::Node& border, const Tensor& gradient) {
  const auto is_here = [&](const Waiting& w) { return w.tokens.border == &border; };
  for (const Waiting& w : waiting_) {
    if (is_here(w)) add_tokens(w.what, gradient, w.tokens, w.of);
  }
  std::erase_if(waiting_, is_here);
}

Record Recorder::record(const OfParameter& what, const std::string& name, const PlannedParameter& planned,
                        const Tensor& tensor) const {
  const std::size_t dot = name.rfind('.');
  const std::string arg = name.substr(dot + 1);
  Record r = record({step_, -1, what.phase, name.substr(0, dot), what.slot,
                     what.state.empty() ? arg : arg + "." + what.state, 0},
                    "", tensor);
  r.global_shape = planned.whole;
  r.offsets = Shape(tensor.shape().size());
  for (const Sharding& s : planned.shardings)
    (*r.offsets)[s.placed.dim] = mesh_.coordinate(s.axis) * tensor.shape()[s.placed.dim];
  if (!is_of_experts(name)) lay_out(r, planned);
  return r;
}

// Experts lie along other axes than the dump's mesh has; what they hold, offsets say.
void Recorder::lay_out(Record& record, const PlannedParameter& planned) const {
  for (const Axis axis : mesh_axes) {
    const auto cut = std::ranges::find(planned.shardings, axis, &Sharding::axis);
    Placement at;
    if (cut != planned.shardings.end() && mesh_.size(axis) > 1) {
      at.kind = Placement::Kind::shard;
      at.dim = static_cast<int>(cut->placed.dim);
    }
    record.placements.push_back(at);
    record.mesh_coordinate.push_back(mesh_.coordinate(axis));
  }
}

void Recorder::parameter(const OfParameter& what, const std::string& name, const PlannedParameter& planned,
                         const Tensor& tensor) {
  add(record(what, name, planned, tensor), tensor);
}

void Recorder::unreduced(const std::string& name, const PlannedParameter& planned, const Tensor& share,
                         const std::vector<Axis>& partial_along) {
  Record r = record({Phase::backward, "grad", "unreduced"}, name, planned, share);
  if (r.placements.empty()) lay_out(r, PlannedParameter());
  r.within = batch_.batch_first;
  for (std::size_t k = 0; k < mesh_axes.size(); ++k) {
    if (std::ranges::find(partial_along, mesh_axes[k]) != partial_along.end())
      r.placements[k] = {Placement::Kind::partial};
  }
  add(std::move(r), share);
}

void Recorder::scalar(Phase phase, const char* name, double value) {
  if (mesh_.rank() != 0) return;
  const Tensor tensor({}, std::span<const double>(&value, 1));
  add(record({step_, -1, phase, "step", "loss", name, 0}, "", tensor), tensor);
}

void Recorder::loss(const std::string& name, const Tensor& tensor) {
  Record r = record({step_, micro_batch_, Phase::forward, name, "loss", "loss", 0}, "", tensor);
  lay_out(r, MeshPlacement());
  add(std::move(r), tensor);
}

}  // namespace assay::align
