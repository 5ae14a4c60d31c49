#include "assay/align/tape/tape.h"

#include <algorithm>

#include "assay/golden/error.h"

namespace assay::align {
namespace {

constexpr std::string_view grad = "grad_";

}  // namespace

const Shape& Tape::hold(Tensor tensor) {
  tensors_.push_back(std::move(tensor));
  return tensors_.back().shape();
}

void Tape::check_shape(const std::string& name, const Tensor& tensor, const Shape& expected) const {
  if (tensor.shape() != expected)
    throw Error("'{}' has shape {}; expected {}", name, assay::to_string(tensor.shape()),
                assay::to_string(expected));
}

Value Tape::input(const Tensor& closed, const MeshPlacement& placement) {
  return add(hold(closed), placement);
}

void Tape::hold_parameter(const NamedParameter& p) {
  Tensor tensor = parameters_(p);
  check_shape(p.name, tensor, p.value.shape);
  hold(std::move(tensor));
}

Shape Tape::hold_indices(const std::string& name, const Shape& shape) {
  Tensor tensor = indices_(name);
  check_shape(name, tensor, shape);
  return hold(std::move(tensor));
}

void Tape::hold_view(const Value& of, const Shape& shape) {
  hold(tensor(of).reshaped(shape));
}

// The first dimension is as long as the formula makes it: what is routed to a rank is not known before.
Shape Tape::hold_derived(const std::vector<Value>& inputs, const Shape& guess, const Formula& formula,
                         bool real) {
  std::vector<Integers> given;
  for (const Value& v : inputs) given.push_back(tensor(v).indices());
  const Integers result = formula(given);
  Shape shape = guess;
  if (shape.size() == 1) shape = {static_cast<std::int64_t>(result.size())};
  if (!real) return hold(Tensor::from_indices(shape, result));
  const std::vector<double> numbers(result.begin(), result.end());
  return hold(Tensor::from_values(ranks_.arithmetic().storage(), shape, numbers));
}

void Tape::hold_sum(const std::string& module, const Value& counts, const std::vector<int>& group) {
  hold(ranks_.sum_indices(group, module, tensor(counts)));
}

std::vector<NamedTensor> Tape::inputs_of(const Node& node) const {
  std::vector<NamedTensor> tensors;
  for (const NamedValue& x : node.inputs)
    tensors.push_back({x.name, is_open(x.value) ? closed_share(node, x.value) : tensor(x.value)});
  return tensors;
}

bool Tape::is_open(const Value& v) const {
  const std::size_t leading = ranks_.arithmetic().leading();
  return leading > 0 && v.placement.is_partial() && tensor(v).shape().size() == v.shape.size() + leading;
}

// A share of a sum is used before the sum is complete: only what is not rounded by that (a row of an
// embedding) may be.
Tensor Tape::closed_share(const Node& node, const Value& v) const {
  const Arithmetic& arithmetic = ranks_.arithmetic();
  Tensor closed = arithmetic.close(tensor(v));
  if (arithmetic.open(closed).values() != tensor(v).values())
    throw Error("{}: {} would round a share of a sum; reduce it first", node.module, node.op->name);
  return closed;
}

Moment Tape::at(Pass pass) const {
  Moment moment = now_;
  moment.pass = pass;
  return moment;
}

std::vector<NamedTensor> Tape::compute(const Node& node, std::vector<NamedTensor> inputs, Pass pass) const {
  const Arithmetic& arithmetic = ranks_.arithmetic();
  if (faults_ == nullptr || (!faults_->before_call && !faults_->after_call))
    return arithmetic.compute(node.module, *node.op, inputs, node.attributes);
  Attributes attributes = node.attributes;
  if (faults_->before_call) faults_->before_call(at(pass), node, inputs, attributes);
  std::vector<NamedTensor> results = arithmetic.compute(node.module, *node.op, inputs, attributes);
  if (faults_->after_call) faults_->after_call(at(pass), node, results);
  return results;
}

std::vector<NamedValue> Tape::hold_call(const Node& node) {
  const auto leading = static_cast<std::ptrdiff_t>(ranks_.arithmetic().leading());
  std::vector<NamedValue> outputs;
  for (NamedTensor& y : compute(node, inputs_of(node), Pass::forward)) {
    const bool open = output_arg(*node.op, y.name).role == Role::output;
    Shape shape = y.tensor.shape();
    if (open) shape.erase(shape.begin(), shape.begin() + leading);
    hold(std::move(y.tensor));
    outputs.push_back({y.name, add(shape)});
  }
  return outputs;
}

// Indices and closed tensors; sums are open, as all is backward.
Tensor Tape::move(const Node& node, const Movement& movement, const Tensor& x, Pass pass) const {
  const auto right = [&](const Movement& m, const Tensor& t) {
    return pass == Pass::backward ? ranks_.move_open(m, node.module, t) : ranks_.move(m, node.module, t);
  };
  if (faults_ != nullptr && faults_->movement) {
    if (auto wrong = faults_->movement(at(pass), node, movement, x, right)) return *std::move(wrong);
  }
  return right(movement, x);
}

Tensor Tape::exchange(const Node& node, const Tensor& rows, const Value& give, Pass pass) const {
  Tensor y = ranks_.exchange_rows(node.module, rows, tensor(give).indices(), pass == Pass::backward);
  if (faults_ != nullptr && faults_->exchanged) faults_->exchanged(at(pass), node, y);
  return y;
}

Tensor Tape::moved(const Node& node, Pass pass) const {
  const Tensor& x = tensor(node.inputs.front().value);
  if (node.kind == Node::Kind::retype) return x;
  if (node.kind == Node::Kind::exchange) return exchange(node, x, node.inputs[1].value, pass);
  const Tensor y = move(node, *node.movement, x, pass);
  const bool is_sum = node.movement->kind == Movement::Kind::all_reduce ||
                      node.movement->kind == Movement::Kind::reduce_scatter;
  return is_sum ? ranks_.arithmetic().close(y) : y;
}

Shape Tape::hold_moved(const Node& node) {
  return hold(moved(node, Pass::forward));
}

// What is partial stays open: it is a share of a sum.
Tensor Tape::settled(const Value& v, Tensor t) const {
  const Arithmetic& arithmetic = ranks_.arithmetic();
  const bool open = arithmetic.leading() > 0 && t.shape().size() == v.shape.size() + arithmetic.leading();
  return open && !v.placement.is_partial() ? arithmetic.close(t) : t;
}

void Tape::placed(const Value& v) {
  tensors_[v.id] = settled(v, std::move(tensors_[v.id]));
}

void Tape::forget(const std::function<bool(const Node&)>& which) {
  for (const Node& node : nodes()) {
    if (node.kind == Node::Kind::whole || !which(node)) continue;
    for (const NamedValue& y : node.outputs) {
      tensors_[y.value.id] = {};
      forgotten_[y.value.id] = &node;
    }
  }
}

const Tensor& Tape::tensor(const Value& v) const {
  const auto at = forgotten_.find(v.id);
  if (at != forgotten_.end()) compute_again(*at->second);
  return tensors_[v.id];
}

void Tape::compute_again(const Node& node) const {
  std::vector<Tensor> again;
  if (node.kind != Node::Kind::call) {
    again.push_back(moved(node, Pass::again));
  } else {
    const std::vector<NamedTensor> results = compute(node, inputs_of(node), Pass::again);
    for (const NamedValue& y : node.outputs) again.push_back(output_named(results, y.name));
  }
  for (std::size_t k = 0; k < again.size(); ++k) {
    const Value& y = node.outputs[k].value;
    tensors_[y.id] = settled(y, std::move(again[k]));
    forgotten_.erase(y.id);
  }
}

void Tape::backward(const std::vector<Seed>& seeds, const Watch& watch) {
  std::vector<Value> of;
  contributions_.assign(tensors_.size(), {});
  for (const Seed& seed : seeds) {
    contributions_[seed.value.id].push_back(ranks_.arithmetic().open(seed.gradient));
    of.push_back(seed.value);
  }
  gradient_placements_ = gradient_placements(of);
  for (auto node = nodes().rbegin(); node != nodes().rend(); ++node) {
    switch (node->kind) {
      case Node::Kind::call:
        go_back(*node, watch);
        break;
      case Node::Kind::whole:
        if (watch) show(*node, watch);
        break;
      case Node::Kind::movement:
      case Node::Kind::retype:
      case Node::Kind::exchange:
        move_back(*node, watch);
    }
  }
}

// An output that nothing depends on has the gradient 0 where the operator wants one; nothing where none of
// them has a gradient.
std::vector<NamedTensor> Tape::gradients_of_outputs(const Node& node, bool with_optional) const {
  std::vector<NamedTensor> gradients;
  bool wanted = false;
  for (const Arg& arg : node.op->args) {
    if (arg.role != Role::grad_output) continue;
    const Value& output = output_of(node.outputs, arg);
    const std::optional<Tensor> known = gradient(output);
    wanted |= known.has_value();
    if ((known && with_optional) || !arg.optional)
      gradients.push_back(
          {std::string(arg.name), known ? *known : Tensor(ranks_.arithmetic().storage(), output.shape)});
  }
  return wanted ? gradients : std::vector<NamedTensor>();
}

void Tape::go_back(const Node& node, const Watch& watch) {
  const std::vector<NamedTensor> of_outputs = gradients_of_outputs(node, true);
  if (of_outputs.empty()) return;
  std::vector<NamedTensor> tensors = inputs_of(node), of_inputs;
  tensors.insert(tensors.end(), of_outputs.begin(), of_outputs.end());
  const std::vector<NamedTensor> results = compute(node, std::move(tensors), Pass::backward);
  for (const NamedValue& input : node.inputs) {
    const Tensor* open = find_tensor(results, std::string(grad) + input.name);
    if (open == nullptr) continue;
    contributions_[input.value.id].push_back(*open);
    if (watch) of_inputs.push_back({std::string(grad) + input.name, *open});
  }
  if (watch) watch(node, of_outputs, of_inputs);
}

// All is known behind its steps. What a strategy does with an optional gradient is its own matter.
void Tape::show(const Node& whole, const Watch& watch) {
  const std::vector<NamedTensor> of_outputs = gradients_of_outputs(whole, false);
  if (of_outputs.empty()) return;
  std::vector<NamedTensor> of_inputs;
  for (const NamedValue& input : whole.inputs) {
    const std::optional<Tensor> known = open_gradient(input.value);
    if (known) of_inputs.push_back({std::string(grad) + input.name, *known});
  }
  watch(whole, of_outputs, of_inputs);
}

void Tape::move_back(const Node& node, const Watch& watch) {
  const Value &x = node.inputs.front().value, &y = node.outputs.front().value;
  std::optional<Tensor> known = open_gradient(y);
  if (!known) return;
  if (node.kind == Node::Kind::retype) {
    if (watch) watch(node, {{"grad_y", ranks_.arithmetic().close(*known)}}, {});
  } else if (node.kind == Node::Kind::exchange) {
    known = exchange(node, *known, node.inputs[2].value, Pass::backward);
  } else {
    const auto back = adjoint(*node.movement, (*gradient_placements_[y.id])[node.movement->axis]);
    if (back) known = move(node, *back, *known, Pass::backward);
  }
  contributions_[x.id].push_back(std::move(*known));
}

Tensor Tape::complete(const std::string& what, const Tensor& open, const MeshPlacement& placement) const {
  return ranks_.arithmetic().close(ranks_.sum(mesh().group(placement.partial_axes()), what, open));
}

std::optional<Tensor> Tape::open_gradient(const Value& v) const {
  if (v.id >= contributions_.size() || contributions_[v.id].empty()) return std::nullopt;
  const std::vector<Tensor>& all = contributions_[v.id];
  return all.size() == 1 ? all.front() : ranks_.arithmetic().add(all, ReduceOrder::ranks);
}

std::optional<Tensor> Tape::gradient(const Value& v) const {
  const std::optional<Tensor> open = open_gradient(v);
  return open ? std::optional(ranks_.arithmetic().close(*open)) : std::nullopt;
}

}  // namespace assay::align
