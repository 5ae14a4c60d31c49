// The calls that losses would be, with what they were given.
#include <algorithm>
#include <cmath>

#include "assay/compare/flow/hidden_loss.h"
#include "assay/operators/engine/recorded.h"

namespace assay {

// That in which the model ends.
const HiddenLosses::Loss* HiddenLosses::model() const {
  const auto found = std::ranges::find_if(known_, [](const auto& k) { return k.second.concludes(); });
  return found == known_.end() ? nullptr : &found->second;
}

// With the share of that micro-batch, where it is known to be another than that of the fit.
HiddenLosses::Loss HiddenLosses::in_frame(const Loss& loss, const Identity& frame) const {
  Loss own = loss;
  const Loss* whole = model();
  if (!loss.of_model || whole == nullptr) return own;
  const Loss::Share share = whole->share_in(frame);
  const double ratio = share.factor / loss.of_model->factor;
  const double reach =
      share.reach / std::abs(share.factor) + loss.of_model->reach / std::abs(loss.of_model->factor);
  if (!std::isfinite(ratio) || std::abs(ratio - 1) <= reach) return own;
  own.factor *= ratio;
  own.reach = reach * std::abs(own.factor);
  return own;
}

std::optional<HiddenLosses::Targets> HiddenLosses::targets(const Loss& loss, const SideValues& side,
                                                           const Identity& frame, std::int64_t places,
                                                           double ignored) {
  const auto found = loss.shown.find({frame.step, frame.micro_batch});
  const std::vector<double>* shown = found == loss.shown.end() ? nullptr : &found->second;
  if (shown != nullptr ? std::ssize(*shown) != places : !loss.index) return {};
  std::vector<double> tokens;
  std::int64_t length = 1;
  if (loss.index) {
    const LogicalTensor* index = side.find(
        at(*loss.index, frame.step, loss.of_micro_batch < 0 ? frame.micro_batch : loss.of_micro_batch));
    if (index == nullptr || index->shape.empty() || element_count(index->shape) != places) return {};
    tokens = side.read(*index)->values;
    length = index->shape.back();
  }
  Targets all{std::vector<double>(static_cast<std::size_t>(places), ignored)};
  for (std::int64_t i = 0; i < places; ++i) {
    const auto own = static_cast<std::size_t>(i);
    if (shown != nullptr && (*shown)[own] < 0) continue;
    const std::int64_t begin = i - i % length, place = i % length + loss.ahead;
    if (loss.index && 0 <= place && place < length) {
      const std::int64_t from = begin + (place + loss.rolled % length + length) % length;
      all.classes[own] = tokens[static_cast<std::size_t>(from)];
    } else if (shown != nullptr) {
      all.classes[own] = (*shown)[own];
      ++all.shown;
    }
  }
  return all;
}

// The tokens are rows of classes to the operator, whatever dimensions the model gave them.
std::optional<HiddenLosses::OneCall> HiddenLosses::call_of(
    const Loss& loss, const SideValues& side, const RecordedCalls& calls, const LogicalTensor& value,
    const std::string& output, const std::vector<double>* result, std::int64_t enough) {
  const bool is_gradient = output.starts_with("grad_");
  const DType dtype = is_gradient ? value.dtype : DType::float32;
  if (loss.of_all_layers) return of_layers(loss, side, calls, value, output);
  if (!loss.concludes()) {
    RecordedCall recorded = calls.of_value(*loss.op, value);
    recorded.output = output;
    return OneCall{
        Call(side.dump(), {std::move(recorded)}, Tensor(dtype, is_gradient ? value.shape : Shape())),
        loss.variant};
  }
  if (value.shape.empty() || value.shape.back() == 0) return {};
  const std::int64_t classes = value.shape.back(), tokens = element_count(value.shape) / classes;
  if (tokens == 0) return {};
  const std::int64_t step = enough == 0 ? 1 : (tokens + enough - 1) / enough,
                     kept = (tokens + step - 1) / step;
  const Shape rows = {tokens, classes}, some = {kept, classes};
  std::vector<NamedTensor> inputs;
  for (const Arg& arg : loss.op->args) {
    if (arg.role == Role::input && inputs.empty()) {
      const Tensor all = merge(side.dump(), value).tensor.whole().reshaped(rows);
      inputs.push_back(
          {std::string(arg.name), step == 1 ? all : gather_view(all, some, {step * classes, 1}, 0)});
    } else if (arg.role == Role::index && inputs.size() == 1) {
      const auto ignored =
          static_cast<double>(complete_attributes(*loss.op, loss.variant.attributes).integer(arg.except));
      const std::optional<Targets> target = targets(loss, side, value.id, tokens, ignored);
      if (!target) return {};
      const Tensor all = Tensor::from_values(DType::int64, {tokens}, target->classes);
      inputs.push_back({std::string(arg.name), step == 1 ? all : gather_view(all, {kept}, {step}, 0)});
    } else if (arg.role == Role::grad_output && is_gradient) {
      inputs.push_back(
          {std::string(arg.name), Tensor::from_values(DType::float64, {}, std::vector<double>{1})});
    }
  }
  Device device = Device::of(dtype);
  if (loss.stores) device.see(value.dtype);
  const Shape shape = is_gradient ? some : Shape();
  Call call(*loss.op, std::move(inputs), output,
            result == nullptr ? Tensor(dtype, shape) : Tensor::from_values(dtype, shape, *result), device);
  return call.work() <= work_of_recorded ? std::optional(OneCall{std::move(call), loss.variant, 0, step})
                                         : std::nullopt;
}

std::vector<const LogicalTensor*> HiddenLosses::in_all_layers(const SideValues& side,
                                                              const LogicalTensor& value) {
  std::vector<const LogicalTensor*> all;
  for (const LogicalTensor& t : side.tensors()) {
    Identity other = t.id;
    other.module = value.id.module;
    if (other == value.id && without_numbers(t.id.module) == without_numbers(value.id.module) &&
        side.find(t.id) == &t && t.shape == value.shape)
      all.push_back(&t);
  }
  return all;
}

// The values of that name in all layers, one below the other, as Hugging Face's load_balancing_loss_func has
// them.
std::optional<HiddenLosses::OneCall> HiddenLosses::of_layers(const Loss& loss, const SideValues& side,
                                                             const RecordedCalls& calls,
                                                             const LogicalTensor& value,
                                                             const std::string& output) {
  std::map<std::string, std::vector<double>> joined;
  std::map<std::string, Shape> shapes;
  std::int64_t begin = -1;
  for (const LogicalTensor* t : in_all_layers(side, value)) {
    for (const RecordedCall::Input& input : calls.of_value(*loss.op, *t).inputs) {
      std::vector<double>& all = joined[input.name];
      if (t == side.find(value.id) && input.tensor == t) begin = std::ssize(all);
      const auto tensor = side.read(*input.tensor);
      all.insert(all.end(), tensor->values.begin(), tensor->values.end());
      const std::int64_t width = tensor->shape.empty() ? 1 : tensor->shape.back();
      shapes[input.name] = {width == 0 ? 0 : std::ssize(all) / width, width};
    }
  }
  const auto main = std::ranges::find(loss.op->args, Role::input, &Arg::role);
  if (begin < 0 || std::ssize(joined[std::string(main->name)]) <= element_count(value.shape)) return {};
  std::vector<NamedTensor> inputs;
  for (const Arg& arg : loss.op->args) {
    const auto found = joined.find(std::string(arg.name));
    if (found == joined.end()) continue;
    const DType dtype = arg.role == Role::index ? DType::int64 : value.dtype;
    inputs.push_back({found->first, Tensor::from_values(dtype, shapes[found->first], found->second)});
  }
  const bool is_gradient = output.starts_with("grad_");
  Device device = Device::of(value.dtype);
  if (unit_roundoff(value.dtype) > unit_roundoff(device.arithmetic)) device.intermediate = value.dtype;
  Tensor result(value.dtype, is_gradient ? shapes[std::string(main->name)] : Shape());
  CallVariant variant = loss.variant;
  if (loss.op->infer != nullptr) {
    assay::Recorded recorded{inputs, output, result};
    loss.op->infer(recorded);
    for (const auto& [name, number] : recorded.attributes.values()) variant.attributes.set(name, number);
  }
  Call call(*loss.op, std::move(inputs), output, std::move(result), device);
  if (call.work() > work_of_recorded) return {};
  return OneCall{std::move(call), std::move(variant), begin};
}

}  // namespace assay
