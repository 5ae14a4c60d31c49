#include "assay/align/tape.h"

#include <algorithm>

#include "assay/golden/error.h"

namespace assay::align {
namespace {

constexpr std::string_view grad = "grad_";

// In the arithmetic of the level: float64, or float32.
Tensor sum(const Tensor& a, const Tensor& b, Level level) {
  return output_named(
      compute_golden(find_operator("add"), std::vector<NamedTensor>{{"a", a}, {"b", b}}, {}, level), "y");
}

// What a gradient is of: grad_y of y, and where there is no y (a loss) of the first output.
const Value& output_of(const std::vector<NamedValue>& outputs, const Arg& gradient) {
  const auto named = std::ranges::find(outputs, gradient.name.substr(grad.size()), &NamedValue::name);
  return named == outputs.end() ? outputs.front().value : named->value;
}

}  // namespace

Value Tape::add(Tensor tensor) {
  tensors_.push_back(std::move(tensor));
  return {tensors_.size() - 1, tensors_.back().shape()};
}

Value Tape::parameter(const std::string& name, const Shape& shape) {
  const auto known = std::ranges::find(used_, name, &NamedParameter::name);
  if (known != used_.end()) return known->value;
  Tensor tensor = parameters_(name, shape);
  if (tensor.shape() != shape)
    throw Error("parameter '{}' has shape {}; expected {}", name, to_string(tensor.shape()),
                to_string(shape));
  used_.push_back({name, add(std::move(tensor))});
  return used_.back().value;
}

Value Tape::indices(const std::string& name, const Shape& shape) {
  Tensor tensor = indices_(name, shape);
  if (tensor.shape() != shape)
    throw Error("'{}' has shape {}; expected {}", name, to_string(tensor.shape()), to_string(shape));
  return add(std::move(tensor));
}

Value Tape::view(const Value& v, const Shape& shape) {
  return add(tensors_[v.id].reshaped(shape));
}

std::vector<NamedValue> Tape::call_all(const std::string& module, std::string_view name,
                                       const std::vector<NamedValue>& inputs, const Attributes& attributes) {
  const Operator& op = find_operator(name);
  std::vector<NamedTensor> tensors;
  for (const NamedValue& input : inputs) tensors.push_back({input.name, tensors_[input.value.id]});
  std::vector<NamedValue> outputs;
  for (NamedTensor& output : compute_golden(op, tensors, attributes, level_))
    outputs.push_back({output.name, add(std::move(output.tensor))});
  nodes_.push_back({module, &op, attributes, inputs, outputs});
  return outputs;
}

void Tape::backward(const Value& scalar, double factor, const Watch& watch) {
  gradients_.assign(tensors_.size(), std::nullopt);
  const DType dtype = level_ == Level::fp64 ? DType::float64 : DType::float32;
  gradients_[scalar.id] = Tensor::from_values(dtype, {}, std::vector<double>{factor});
  for (auto node = nodes_.rbegin(); node != nodes_.rend(); ++node) go_back(*node, watch);
}

void Tape::accumulate(const Value& v, const Tensor& gradient) {
  std::optional<Tensor>& at = gradients_[v.id];
  at = at ? sum(*at, gradient, level_) : gradient;
}

// An output that nothing depends on has the gradient 0 where the operator wants one.
void Tape::go_back(const Node& node, const Watch& watch) {
  std::vector<NamedTensor> tensors, of_outputs, of_inputs;
  for (const NamedValue& input : node.inputs) tensors.push_back({input.name, tensors_[input.value.id]});
  bool wanted = false;
  for (const Arg& arg : node.op->args) {
    if (arg.role != Role::grad_output) continue;
    const Value& output = output_of(node.outputs, arg);
    const std::optional<Tensor>& gradient = gradients_[output.id];
    wanted |= gradient.has_value();
    if (gradient || !arg.optional)
      of_outputs.push_back(
          {std::string(arg.name), gradient ? *gradient : Tensor(tensors_[output.id].dtype(), output.shape)});
  }
  if (!wanted) return;
  tensors.insert(tensors.end(), of_outputs.begin(), of_outputs.end());
  const std::vector<NamedTensor> results = compute_golden(*node.op, tensors, node.attributes, level_);
  for (const NamedValue& input : node.inputs) {
    const Tensor* gradient = find_tensor(results, std::string(grad) + input.name);
    if (gradient == nullptr) continue;
    accumulate(input.value, *gradient);
    of_inputs.push_back({std::string(grad) + input.name, *gradient});
  }
  if (watch) watch(node, of_outputs, of_inputs);
}

const Tensor* Tape::gradient(const Value& v) const {
  return v.id < gradients_.size() && gradients_[v.id] ? &*gradients_[v.id] : nullptr;
}

}  // namespace assay::align
