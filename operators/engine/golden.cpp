#include "assay/operators/engine/golden.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <utility>

#include "assay/golden/error.h"
#include "assay/golden/interrupt.h"
#include "assay/golden/parallel.h"
#include "assay/operators/engine/binding.h"
#include "assay/operators/engine/certified.h"
#include "assay/operators/engine/outputs.h"
#include "assay/operators/engine/padding_mask.h"

namespace assay {

std::string_view name(Role role) {
  constexpr std::string_view names[] = {"input",  "param",      "index",       "grad_output",
                                        "output", "grad_input", "output_index"};
  return names[static_cast<std::size_t>(role)];
}

namespace {
constexpr std::pair<std::string_view, Level> levels[] = {{"report", Level::report},
                                                         {"fp64", Level::fp64},
                                                         {"certified", Level::certified},
                                                         {"bound", Level::bound}};
}

std::string_view name(Level level) {
  return levels[static_cast<std::size_t>(level)].first;
}

Level parse_level(std::string_view text) {
  for (const auto& [name, level] : levels) {
    if (name == text) return level;
  }
  throw Error("there is no level '{}'; expected report, fp64, certified or bound", text);
}

bool Domain::contains(double v) const {
  return !std::isfinite(v) || clip(v) == v;
}

double Domain::clip(double v) const {
  const double inside = std::clamp(v, low, high);
  return inside != 0 && std::abs(inside) < least ? std::copysign(least, inside) : inside;
}

template <class T>
bool Tensors<T>::has(const Arg& arg) const {
  if (!is_list(arg)) return has(arg.name);
  return has(std::string(arg.name.substr(0, arg.name.size() - 1)) + "0");
}

template <class T>
std::int64_t Tensors<T>::count(std::string_view list) const {
  const std::string_view prefix = list.substr(0, list.size() - 1);
  std::int64_t n = 0;
  while (slots_.contains(std::string(prefix) + std::to_string(n))) ++n;
  return n;
}

template <class T>
typename Tensors<T>::Slot& Tensors<T>::slot(std::string_view name) {
  const auto found = slots_.find(name);
  if (found == slots_.end()) throw Error("there is no tensor '{}' in this call", name);
  return found->second;
}

template class Tensors<float>;
template class Tensors<double>;
template class Tensors<Bound>;
template class Tensors<BoundLanes<2>>;
template class Tensors<BoundLanes<4>>;
template class Tensors<BoundLanes<8>>;
template class Tensors<Truth>;
template class Tensors<Unrounded>;

Tensor bits_of(const Tensor& tensor) {
  const std::size_t size = size_of(tensor.dtype());
  std::vector<std::int64_t> bits(static_cast<std::size_t>(tensor.size()), 0);
  for (std::size_t i = 0; i < bits.size(); ++i)
    std::memcpy(&bits[i], tensor.bytes().data() + i * size, size);  // little-endian
  return Tensor::from_indices(tensor.shape(), bits);
}

namespace {

// None negative, so that no sum on the way is beyond the whole.
void check_parts(const Operator& op, const Arg& arg, const std::vector<std::int64_t>& parts,
                 const Dims& dims) {
  const std::int64_t whole = dims.at(arg.sums_to);
  std::int64_t rest = whole;
  for (const std::int64_t part : parts) {
    if (part < 0 || part > rest) {
      rest = -1;
      break;
    }
    rest -= part;
  }
  if (rest != 0) {
    throw Error("{}: '{}' is {}; expected numbers of 0 or more that add up to {} = {}", op.name, arg.name,
                to_string(parts), arg.sums_to, whole);
  }
}

// Indices come from files: none may reach outside.
void check_range(const Operator& op, const Arg& arg, const std::vector<std::int64_t>& indices,
                 const Dims& dims, const Attributes& attributes) {
  if (!arg.sums_to.empty()) check_parts(op, arg, indices, dims);
  if (arg.indexes.empty()) return;
  const std::int64_t end = dims.at(arg.indexes);
  const bool excepted = !arg.except.empty() && attributes.has(arg.except);
  const std::int64_t except = excepted ? attributes.integer(arg.except) : 0;
  for (std::size_t i = 0; i < indices.size(); ++i) {
    if ((indices[i] >= 0 && indices[i] < end) || (excepted && indices[i] == except)) continue;
    throw Error("{}: '{}' has the index {} at position {}; expected 0 <= index < {} = {}{}", op.name,
                arg.name, indices[i], i, arg.indexes, end,
                excepted ? fmt::format(", or {} = {}", arg.except, except) : "");
  }
}

// The shape that letters and dims give, and the extents of a View.
template <class T>
void place(typename Tensors<T>::Slot& slot, std::string_view letters, const Dims& dims) {
  slot.shape = expand(letters, dims);
  slot.extents = extents_of(letters, dims);
}

template <class T>
void allocate(typename Tensors<T>::Slot& slot, const Operator& op, const Arg& arg) {
  const std::int64_t size = element_count(slot.shape);
  if (size > most_output_elements) {
    throw Error("{}: '{}' of shape {} has {} elements; expected at most {}", op.name, arg.name,
                to_string(slot.shape), size, most_output_elements);
  }
  if (holds_indices(arg))
    slot.indices.assign(static_cast<std::size_t>(size), 0);
  else
    slot.values.assign(static_cast<std::size_t>(size), T(0));
}

template <class T>
constexpr bool is_hardware = std::is_same_v<T, float> || std::is_same_v<T, double>;
template <class T>
constexpr DType dtype_of = std::is_same_v<T, float> ? DType::float32 : DType::float64;

template <class T>
std::vector<T> scalars_of(const Tensor& tensor) {
  if constexpr (is_hardware<T>) {
    if (tensor.dtype() == dtype_of<T>) {
      std::vector<T> scalars(static_cast<std::size_t>(tensor.size()));
      if (!scalars.empty()) std::memcpy(scalars.data(), tensor.bytes().data(), tensor.bytes().size());
      return scalars;
    }
  }
  const auto all = [&](auto scalar_of) {
    std::vector<T> scalars(static_cast<std::size_t>(tensor.size()));
    in_parallel(tensor.size(), grain_of(4), [&](std::int64_t begin, std::int64_t end) {
      std::vector<double> some(static_cast<std::size_t>(end - begin));
      const std::size_t size = size_of(tensor.dtype()), first = static_cast<std::size_t>(begin);
      decode(tensor.dtype(), tensor.bytes().subspan(first * size, some.size() * size), some);
      std::ranges::transform(some, scalars.begin() + begin, scalar_of);
    });
    return scalars;
  };
  if constexpr (std::is_same_v<T, Bound>) {
    // No number of a format is rounded where the device's has all its digits.
    const ErrorModel& device = ErrorScope::current();
    if (is_float(tensor.dtype()) && unit_roundoff(tensor.dtype()) >= device.unit_roundoff &&
        min_subnormal(tensor.dtype()) >= device.min_subnormal) {
      return all([](double v) { return std::isnan(v) ? constant<T>(v) : T(v); });
    }
  }
  return all([](double v) { return constant<T>(v); });
}

template <class T>
typename Tensors<T>::Slot input_slot(const Operator& op, const Arg& arg, const NamedTensor& input,
                                     const Dims& dims, const Attributes& attributes) {
  typename Tensors<T>::Slot slot;
  slot.arg = &arg;
  if (!is_list(arg)) place<T>(slot, shape_letters(op, arg, attributes), dims);
  slot.shape = input.tensor.shape();
  if (arg.raw) {
    slot.indices = bits_of(input.tensor).indices();
  } else if (arg.hides) {
    auto visible = visible_in(input.tensor.dtype(), input.tensor.values());
    if (!visible) {
      throw Error(
          "{}: '{}' is no mask of keys; expected 0 and 1, or floats to be added to scores, 0 or so low that "
          "nothing is left",
          op.name, input.name);
    }
    slot.indices = std::move(*visible);
  } else if (holds_indices(arg)) {
    if (is_float(input.tensor.dtype())) {
      throw Error("{}: input '{}' is {}; expected an integer dtype", op.name, input.name,
                  name(input.tensor.dtype()));
    }
    slot.indices = input.tensor.indices();
    check_range(op, arg, slot.indices, dims, attributes);
  } else {
    slot.values = scalars_of<T>(input.tensor);
  }
  return slot;
}

void add_errors(Tensors<Bound>& tensors, std::string_view input, std::span<const double> error) {
  std::vector<Bound>& values = tensors.slot(input).values;
  if (error.size() != values.size())
    throw Error("input '{}' has {} elements and {} errors", input, values.size(), error.size());
  for (std::size_t i = 0; i < error.size(); ++i) values[i].error += error[i];
}

template <class T>
void run_on(const Operator& op, Tensors<T>& tensors, const Dims& dims, const Attributes& attributes) {
  if constexpr (std::is_same_v<T, float>) op.run_float(tensors, dims, attributes);
  if constexpr (std::is_same_v<T, double>) op.run_double(tensors, dims, attributes);
  if constexpr (std::is_same_v<T, Bound>) op.run_bound(tensors, dims, attributes);
  if constexpr (std::is_same_v<T, Truth>) op.run_truth(tensors, dims, attributes);
  if constexpr (std::is_same_v<T, Unrounded>) op.run_unrounded(tensors, dims, attributes);
}

template <class T>
Tensor tensor_owning(const Shape& shape, std::vector<T> elements) {
  auto owner = std::make_shared<const std::vector<T>>(std::move(elements));
  const auto bytes = std::as_bytes(std::span(*owner));
  return {dtype_of<T>, shape, bytes, std::move(owner)};
}

// float32 at T = float, float64 at double.
template <class T>
std::vector<NamedTensor> golden_outputs(const Operator& op, Tensors<T> tensors) {
  return outputs_of(op, tensors, [](typename Tensors<T>::Slot& slot) {
    if (holds_indices(*slot.arg)) return Tensor::from_indices(slot.shape, slot.indices);
    if (slot.arg->exact != Exact::bits) {
      for (T& v : slot.values) v = with_one_nan(v);
    }
    return tensor_owning(slot.shape, std::move(slot.values));
  });
}

// One number of each element; 0 for indices.
template <class F>
Tensor doubles_of(const Tensors<Bound>::Slot& slot, F f) {
  std::vector<double> numbers(static_cast<std::size_t>(element_count(slot.shape)), 0);
  std::ranges::transform(slot.values, numbers.begin(), f);
  return tensor_owning(slot.shape, std::move(numbers));
}

std::vector<NamedTensor> errors_of(const Operator& op, const Tensors<Bound>& made) {
  return outputs_of(op, made,
                    [](const Tensors<Bound>::Slot& slot) { return doubles_of(slot, &Bound::error); });
}

}  // namespace

std::vector<InputShape> shapes_of(std::span<const NamedTensor> inputs) {
  std::vector<InputShape> shapes;
  shapes.reserve(inputs.size());
  for (const NamedTensor& input : inputs) {
    shapes.push_back(
        {input.name, input.tensor.shape(), is_float(input.tensor.dtype()) ? nullptr : &input.tensor});
  }
  return shapes;
}

template <class T>
Prepared<T> prepare(const Operator& op, std::span<const NamedTensor> inputs, const Attributes& given) {
  const Attributes attributes = complete_attributes(op, given);
  const std::vector<InputShape> shapes = shapes_of(inputs);
  const Dims dims = bind_dims(op, shapes, attributes);
  Tensors<T> tensors;
  for (const NamedTensor& input : inputs) {
    const Arg& arg = input_arg(op, input.name);
    tensors.slots().emplace(input.name, input_slot<T>(op, arg, input, dims, attributes));
  }
  for (const Arg* made : outputs_made(op, inputs)) {
    const Arg& arg = *made;
    typename Tensors<T>::Slot slot;
    slot.arg = &arg;
    place<T>(slot, shape_letters(op, arg, attributes), dims);
    allocate<T>(slot, op, arg);
    tensors.slots().emplace(arg.name, std::move(slot));
  }
  return {std::move(tensors), dims, attributes};
}

template <class T>
Tensors<T> evaluate(const Operator& op, std::span<const NamedTensor> inputs, const Attributes& given,
                    std::string_view only, const InputErrors& errors) {
  InterruptScope::check();
  auto [tensors, dims, attributes] = prepare<T>(op, inputs, given);
  if constexpr (std::is_same_v<T, Bound>) {
    for (const auto& [input, error] : errors) add_errors(tensors, input, error);
  }
  tensors.want_only(only);
  run_on(op, tensors, dims, attributes);
  for (auto& made : tensors.slots()) {
    if (made.second.arg != nullptr) continue;
    const auto arg =
        std::ranges::find_if(op.args, [&](const Arg& a) { return !is_given(a) && names(a, made.first); });
    if (arg == op.args.end())
      throw Error("{} made the output '{}' that it does not declare", op.name, made.first);
    made.second.arg = &*arg;
  }
  return std::move(tensors);
}

template Prepared<float> prepare<float>(const Operator&, std::span<const NamedTensor>, const Attributes&);
template Tensors<float> evaluate<float>(const Operator&, std::span<const NamedTensor>, const Attributes&,
                                        std::string_view, const InputErrors&);
template Tensors<double> evaluate<double>(const Operator&, std::span<const NamedTensor>, const Attributes&,
                                          std::string_view, const InputErrors&);
template Tensors<Bound> evaluate<Bound>(const Operator&, std::span<const NamedTensor>, const Attributes&,
                                        std::string_view, const InputErrors&);
template Tensors<Truth> evaluate<Truth>(const Operator&, std::span<const NamedTensor>, const Attributes&,
                                        std::string_view, const InputErrors&);
template Tensors<Unrounded> evaluate<Unrounded>(const Operator&, std::span<const NamedTensor>,
                                                const Attributes&, std::string_view, const InputErrors&);

std::vector<NamedTensor> compute_golden(const Operator& op, std::span<const NamedTensor> inputs,
                                        const Attributes& attributes, Level level, std::string_view only) {
  if (level == Level::report) {
    return golden_outputs(op, evaluate<float>(op, inputs, attributes, only));
  }
  if (level == Level::certified) {
    std::vector<NamedTensor> values;
    for (CertifiedTensor& t : compute_certified(op, inputs, attributes)) values.push_back(std::move(t.value));
    return values;
  }
  if (level == Level::bound) return compute_bound(op, inputs, attributes, float32_device, only);
  return golden_outputs(op, evaluate<double>(op, inputs, attributes, only));
}

std::vector<NamedTensor> compute_bound(const Operator& op, std::span<const NamedTensor> inputs,
                                       const Attributes& attributes, const ErrorModel& device,
                                       std::string_view only, const InputErrors& errors) {
  const ErrorScope scope(device);
  return errors_of(op, evaluate<Bound>(op, inputs, attributes, only, errors));
}

GoldenAndBound compute_golden_and_bound(const Operator& op, std::span<const NamedTensor> inputs,
                                        const Attributes& attributes, const ErrorModel& device,
                                        std::string_view only, const InputErrors& errors) {
  const ErrorScope scope(device);
  const Tensors<Bound> made = evaluate<Bound>(op, inputs, attributes, only, errors);
  auto values = outputs_of(op, made, [](const Tensors<Bound>::Slot& slot) {
    return doubles_of(slot, [&](const Bound& b) { return output_value(*slot.arg, b.value); });
  });
  return {std::move(values), errors_of(op, made)};
}

const Tensor* find_tensor(std::span<const NamedTensor> tensors, std::string_view name) {
  const auto found = std::ranges::find(tensors, name, &NamedTensor::name);
  return found == tensors.end() ? nullptr : &found->tensor;
}

const Tensor& output_named(std::span<const NamedTensor> outputs, std::string_view name) {
  const Tensor* found = find_tensor(outputs, name);
  if (found == nullptr) throw Error("the operator makes no output '{}' from these inputs", name);
  return *found;
}

}  // namespace assay
