#include "assay/operators/golden.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "assay/golden/error.h"

namespace assay {

std::string_view name(Role role) {
  constexpr std::string_view names[] = {"input",  "param",      "index",       "grad_output",
                                        "output", "grad_input", "output_index"};
  return names[static_cast<std::size_t>(role)];
}

namespace {
constexpr std::pair<std::string_view, Level> levels[] = {{"report", Level::report}, {"fp64", Level::fp64}};
}

std::string_view name(Level level) {
  return levels[static_cast<std::size_t>(level)].first;
}

Level parse_level(std::string_view text) {
  for (const auto& [name, level] : levels) {
    if (name == text) return level;
  }
  throw Error("there is no level '{}'; expected report or fp64", text);
}

std::int64_t Dims::at(std::string_view letter) const {
  return element_count(extents(letter));
}

const Shape& Dims::extents(std::string_view letter) const {
  const auto found = extents_.find(letter);
  if (found == extents_.end()) throw Error("extent '{}' is not known from the inputs given", letter);
  return found->second;
}

const InputShape* find_input(InputShapes inputs, std::string_view name) {
  const auto found = std::ranges::find(inputs, name, &InputShape::name);
  return found == inputs.end() ? nullptr : &*found;
}

const Shape& shape_of_input(InputShapes inputs, std::string_view name) {
  if (const InputShape* found = find_input(inputs, name)) return found->shape;
  throw Error("input '{}' is missing", name);
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
template class Tensors<Truth>;

namespace {

// One comma-separated part of Arg::shape: "N", "N*" or "1".
struct Part {
  std::string_view letter;
  bool starred = false;
  bool literal = false;
};

std::vector<Part> parts_of(std::string_view shape) {
  std::vector<Part> parts;
  while (!shape.empty()) {
    const auto comma = shape.find(',');
    const std::string_view text = shape.substr(0, comma);
    const bool starred = text.ends_with('*');
    parts.push_back({starred ? text.substr(0, text.size() - 1) : text, starred, text == "1"});
    shape = comma == std::string_view::npos ? std::string_view() : shape.substr(comma + 1);
  }
  return parts;
}

bool is_list(const Arg& arg) {
  return arg.name.ends_with('#');
}
bool is_given(const Arg& arg) {
  return arg.role != Role::output && arg.role != Role::output_index && arg.role != Role::grad_input;
}
bool holds_indices(const Arg& arg) {
  return arg.role == Role::index || arg.role == Role::output_index;
}

// A number as it is written: digits alone, no leading zeros.
std::optional<std::int64_t> whole_number(std::string_view text) {
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || std::to_string(number) != text || number < 0) return std::nullopt;
  return number;
}

// The 3 of "grad_3" in "grad_#"; 0 for the name itself of what is no list.
std::optional<std::int64_t> member_number(const Arg& arg, std::string_view name) {
  if (!is_list(arg)) return arg.name == name ? std::optional<std::int64_t>(0) : std::nullopt;
  const std::string_view prefix = arg.name.substr(0, arg.name.size() - 1);
  return name.starts_with(prefix) ? whole_number(name.substr(prefix.size())) : std::nullopt;
}

bool names(const Arg& arg, std::string_view name) {
  return member_number(arg, name).has_value();
}

std::string_view shape_letters(const Operator& op, const Arg& arg, const Attributes& attributes) {
  return op.shape_of != nullptr ? op.shape_of(arg, attributes) : arg.shape;
}

const Arg& given_arg(const Operator& op, std::string_view name) {
  std::string known;
  for (const Arg& arg : op.args) {
    if (!is_given(arg)) continue;
    if (names(arg, name)) return arg;
    known += (known.empty() ? "" : ", ") + std::string(arg.name);
  }
  throw Error("{} has no input '{}'; it has {}", op.name, name, known);
}

// Fits one input's shape to its letters; what is already known must agree.
void fit(const Operator& op, const InputShape& input, std::string_view letters, Dims& dims) {
  const std::vector<Part> parts = parts_of(letters);
  const auto contradicts = [&](const std::string& why) {
    return Error("{}: input '{}' has shape {}; expected [{}]{}", op.name, input.name, to_string(input.shape),
                 letters, why);
  };
  // The one unknown starred letter takes the extents that the others leave.
  std::size_t known = 0, unknown_stars = 0;
  for (const Part& part : parts) {
    if (!part.starred)
      ++known;
    else if (dims.has(part.letter))
      known += dims.extents(part.letter).size();
    else
      ++unknown_stars;
  }
  const std::size_t rank = input.shape.size();
  if (unknown_stars > 1) throw Error("{}: the shape [{}] of '{}' is ambiguous", op.name, letters, input.name);
  if (rank < known || (unknown_stars == 0 && rank != known)) throw contradicts("");
  std::size_t d = 0;
  for (const Part& part : parts) {
    const bool is_known = !part.literal && dims.has(part.letter);
    const std::size_t length = !part.starred ? 1 : is_known ? dims.extents(part.letter).size() : rank - known;
    const Shape extents(input.shape.begin() + static_cast<std::ptrdiff_t>(d),
                        input.shape.begin() + static_cast<std::ptrdiff_t>(d + length));
    d += length;
    if (part.literal ? extents != Shape{1} : is_known && dims.extents(part.letter) != extents) {
      throw contradicts(
          part.literal ? ""
                       : fmt::format(" with {} = {}", part.letter, to_string(dims.extents(part.letter))));
    }
    if (!part.literal && !is_known) dims.set(part.letter, extents);
  }
}

// Every given name is an input, once; every input that must be there is.
void check_presence(const Operator& op, InputShapes inputs) {
  std::set<std::string_view> seen;
  for (const InputShape& input : inputs) {
    given_arg(op, input.name);
    if (!seen.insert(input.name).second) throw Error("{}: input '{}' is given twice", op.name, input.name);
  }
  for (const Arg& arg : op.args) {
    if (!is_given(arg) || arg.optional || arg.role == Role::grad_output) continue;
    if (std::ranges::none_of(inputs, [&](const InputShape& input) { return names(arg, input.name); })) {
      throw Error("{}: input '{}' is missing", op.name, arg.name);
    }
  }
  for (const Arg& arg : op.args) {
    if (!is_given(arg) || !is_list(arg)) continue;
    const auto members =
        std::ranges::count_if(inputs, [&](const InputShape& input) { return names(arg, input.name); });
    for (const InputShape& input : inputs) {
      if (member_number(arg, input.name).value_or(0) < members) continue;
      throw Error("{}: input '{}' is one of {}; expected the numbers 0 to {}", op.name, input.name, members,
                  members - 1);
    }
  }
}

// The extents of a shape's parts, and the shape they make.
Shape expand(std::string_view letters, const Dims& dims) {
  Shape shape;
  for (const Part& part : parts_of(letters)) {
    const Shape extents = part.literal ? Shape{1} : dims.extents(part.letter);
    shape.insert(shape.end(), extents.begin(), extents.end());
  }
  element_count(shape);
  return shape;
}

// Indices come from files: none may reach outside.
void check_range(const Operator& op, const Arg& arg, const std::vector<std::int64_t>& indices,
                 const Dims& dims, const Attributes& attributes) {
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

}  // namespace

Dims bind_dims(const Operator& op, InputShapes inputs, const Attributes& attributes) {
  Dims dims;
  check_presence(op, inputs);
  if (op.bind != nullptr) op.bind(dims, inputs, attributes);
  for (const InputShape& input : inputs) {
    const Arg& arg = given_arg(op, input.name);
    if (!is_list(arg)) fit(op, input, shape_letters(op, arg, attributes), dims);
  }
  return dims;
}

Shape shape_of(const Operator& op, const Arg& arg, const Dims& dims, const Attributes& attributes) {
  return expand(shape_letters(op, arg, attributes), dims);
}

namespace {

// The shape that letters and dims give, and the extents of a View: one per letter.
template <class T>
void place(typename Tensors<T>::Slot& slot, std::string_view letters, const Dims& dims) {
  slot.shape = expand(letters, dims);
  for (const Part& part : parts_of(letters)) slot.extents.push_back(part.literal ? 1 : dims.at(part.letter));
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
typename Tensors<T>::Slot input_slot(const Operator& op, const Arg& arg, const NamedTensor& input,
                                     const Dims& dims, const Attributes& attributes) {
  typename Tensors<T>::Slot slot;
  slot.arg = &arg;
  if (!is_list(arg)) place<T>(slot, shape_letters(op, arg, attributes), dims);
  slot.shape = input.tensor.shape();
  if (holds_indices(arg)) {
    if (is_float(input.tensor.dtype())) {
      throw Error("{}: input '{}' is {}; expected an integer dtype", op.name, input.name,
                  name(input.tensor.dtype()));
    }
    slot.indices = input.tensor.indices();
    check_range(op, arg, slot.indices, dims, attributes);
  } else {
    const std::vector<double> values = input.tensor.values();
    slot.values.reserve(values.size());
    for (const double v : values) slot.values.push_back(constant<T>(v));
  }
  return slot;
}

std::vector<InputShape> shapes_of(std::span<const NamedTensor> inputs) {
  std::vector<InputShape> shapes;
  for (const NamedTensor& input : inputs) {
    shapes.push_back(
        {input.name, input.tensor.shape(), is_float(input.tensor.dtype()) ? nullptr : &input.tensor});
  }
  return shapes;
}

template <class T>
void run_on(const Operator& op, Tensors<T>& tensors, const Dims& dims, const Attributes& attributes) {
  if constexpr (std::is_same_v<T, float>) op.run_float(tensors, dims, attributes);
  if constexpr (std::is_same_v<T, double>) op.run_double(tensors, dims, attributes);
  if constexpr (std::is_same_v<T, Bound>) op.run_bound(tensors, dims, attributes);
  if constexpr (std::is_same_v<T, Truth>) op.run_truth(tensors, dims, attributes);
}

// The outputs in the order of the declaration, the members of a list by their numbers.
// @param to_tensor  makes the tensor of one slot
template <class T, class F>
std::vector<NamedTensor> outputs_of(const Operator& op, const Tensors<T>& tensors, F to_tensor) {
  std::vector<NamedTensor> outputs;
  for (const Arg& arg : op.args) {
    if (is_given(arg)) continue;
    std::map<std::int64_t, NamedTensor> members;
    for (const auto& [name, slot] : tensors.slots()) {
      if (slot.arg == &arg) members[*member_number(arg, name)] = {name, to_tensor(slot)};
    }
    for (auto& [number, member] : members) outputs.push_back(std::move(member));
  }
  return outputs;
}

// The sign of a NaN that was computed is the machine's: x86 has -NaN for 0 / 0, ARM +NaN.
template <class T>
std::vector<NamedTensor> golden_outputs(const Operator& op, const Tensors<T>& tensors, DType dtype) {
  return outputs_of(op, tensors, [&](const typename Tensors<T>::Slot& slot) {
    if (holds_indices(*slot.arg)) return Tensor::from_indices(slot.shape, slot.indices);
    std::vector<double> values(slot.values.begin(), slot.values.end());
    for (double& v : values) {
      if (std::isnan(v) && !slot.arg->copy) v = std::numeric_limits<double>::quiet_NaN();
    }
    return Tensor::from_values(dtype, slot.shape, values);
  });
}

}  // namespace

template <class T>
Tensors<T> evaluate(const Operator& op, std::span<const NamedTensor> inputs, const Attributes& given) {
  const Attributes attributes = complete_attributes(op, given);
  const std::vector<InputShape> shapes = shapes_of(inputs);
  const Dims dims = bind_dims(op, shapes, attributes);
  Tensors<T> tensors;
  for (const NamedTensor& input : inputs) {
    const Arg& arg = given_arg(op, input.name);
    tensors.slots().emplace(input.name, input_slot<T>(op, arg, input, dims, attributes));
  }
  bool with_backward = op.has_backward;
  for (const Arg& arg : op.args) {
    if (arg.role == Role::grad_output) with_backward = with_backward && tensors.has(arg.name);
  }
  for (const Arg& arg : op.args) {
    if (is_given(arg) || (arg.role == Role::grad_input && !with_backward)) continue;
    // An optional output belongs to the optional input of the same name ("grad_bias" to "bias").
    if (arg.optional && arg.name.starts_with("grad_") && !tensors.has(arg.name.substr(5))) continue;
    if (is_list(arg)) continue;  // made by the operator itself
    typename Tensors<T>::Slot slot;
    slot.arg = &arg;
    place<T>(slot, shape_letters(op, arg, attributes), dims);
    allocate<T>(slot, op, arg);
    tensors.slots().emplace(arg.name, std::move(slot));
  }
  run_on(op, tensors, dims, attributes);
  for (auto& made : tensors.slots()) {
    if (made.second.arg != nullptr) continue;
    const auto arg =
        std::ranges::find_if(op.args, [&](const Arg& a) { return !is_given(a) && names(a, made.first); });
    if (arg == op.args.end())
      throw Error("{} made the output '{}' that it does not declare", op.name, made.first);
    made.second.arg = &*arg;
  }
  return tensors;
}

template Tensors<float> evaluate<float>(const Operator&, std::span<const NamedTensor>, const Attributes&);
template Tensors<double> evaluate<double>(const Operator&, std::span<const NamedTensor>, const Attributes&);
template Tensors<Bound> evaluate<Bound>(const Operator&, std::span<const NamedTensor>, const Attributes&);
template Tensors<Truth> evaluate<Truth>(const Operator&, std::span<const NamedTensor>, const Attributes&);

std::vector<NamedTensor> compute_golden(const Operator& op, std::span<const NamedTensor> inputs,
                                        const Attributes& attributes, Level level) {
  if (level == Level::report) {
    return golden_outputs(op, evaluate<float>(op, inputs, attributes), DType::float32);
  }
  return golden_outputs(op, evaluate<double>(op, inputs, attributes), DType::float64);
}

std::vector<NamedTensor> compute_bound(const Operator& op, std::span<const NamedTensor> inputs,
                                       const Attributes& attributes, const ErrorModel& device) {
  const ErrorScope scope(device);
  return outputs_of(op, evaluate<Bound>(op, inputs, attributes), [](const Tensors<Bound>::Slot& slot) {
    std::vector<double> errors(static_cast<std::size_t>(element_count(slot.shape)), 0);
    std::ranges::transform(slot.values, errors.begin(), &Bound::error);
    return Tensor::from_values(DType::float64, slot.shape, errors);
  });
}

const Arg& output_arg(const Operator& op, std::string_view output) {
  const auto found =
      std::ranges::find_if(op.args, [&](const Arg& arg) { return !is_given(arg) && names(arg, output); });
  if (found == op.args.end()) throw Error("{} has no output '{}'", op.name, output);
  return *found;
}

namespace {

// The text up to the separator, which is taken off with it.
std::string_view cut(std::string_view& text, std::string_view separator) {
  const auto at = text.find(separator);
  const std::string_view first = text.substr(0, at);
  text = at == std::string_view::npos ? std::string_view() : text.substr(at + separator.size());
  return first;
}

}  // namespace

std::int64_t accumulation_count(const Operator& op, std::string_view output, const Dims& dims) {
  const Arg& arg = output_arg(op, output);
  std::int64_t total = 0;
  for (std::string_view terms = arg.terms; !terms.empty();) {
    std::int64_t product = 1;
    for (std::string_view factors = cut(terms, " + "); !factors.empty();) {
      const std::string_view factor = cut(factors, " ");
      const auto literal = whole_number(factor);
      const std::int64_t value = factor == "#" ? *member_number(arg, output)
                                 : literal     ? *literal
                                               : dims.at(factor);
      if (__builtin_mul_overflow(product, value, &product))
        product = std::numeric_limits<std::int64_t>::max();
    }
    if (__builtin_add_overflow(total, product, &total)) total = std::numeric_limits<std::int64_t>::max();
  }
  return total;
}

std::int64_t accumulation_count(const Operator& op, std::string_view output, InputShapes inputs,
                                const Attributes& given) {
  return accumulation_count(op, output, bind_dims(op, inputs, complete_attributes(op, given)));
}

}  // namespace assay
