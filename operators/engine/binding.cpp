#include "assay/operators/engine/binding.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <vector>

#include "assay/golden/error.h"
#include "assay/operators/engine/golden.h"

namespace assay {
namespace {

// A number as it is written: digits alone, no leading zeros.
std::optional<std::int64_t> whole_number(std::string_view text) {
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || std::to_string(number) != text || number < 0) return std::nullopt;
  return number;
}

}  // namespace

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

std::vector<Part> parts_of(std::string_view shape) {
  std::vector<Part> parts;
  parts.reserve(static_cast<std::size_t>(std::ranges::count(shape, ',')) + 1);
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

const Arg& input_arg(const Operator& op, std::string_view name) {
  const auto found =
      std::ranges::find_if(op.args, [&](const Arg& arg) { return is_given(arg) && names(arg, name); });
  if (found != op.args.end()) return *found;
  std::string known;
  for (const Arg& arg : op.args) {
    if (is_given(arg)) known += (known.empty() ? "" : ", ") + std::string(arg.name);
  }
  throw Error("{} has no input '{}'; it has {}", op.name, name, known);
}

namespace {

Error contradicts(const Operator& op, const InputShape& input, std::string_view letters,
                  const std::string& why = "") {
  return Error("{}: input '{}' has shape {}; expected [{}]{}", op.name, input.name, to_string(input.shape),
               letters, why);
}

// What an operator binds itself may take for granted: a dimension for each letter without a star.
void check_ranks(const Operator& op, InputShapes inputs, const Attributes& attributes) {
  for (const InputShape& input : inputs) {
    const std::string_view letters = shape_letters(op, input_arg(op, input.name), attributes);
    const auto least = std::ranges::count_if(parts_of(letters), [](const Part& p) { return !p.starred; });
    if (std::ssize(input.shape) < least) throw contradicts(op, input, letters);
  }
}

// Fits one input's shape to its letters; what is already known must agree.
void fit(const Operator& op, const InputShape& input, std::string_view letters, Dims& dims) {
  const std::vector<Part> parts = parts_of(letters);
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
  if (rank < known || (unknown_stars == 0 && rank != known)) throw contradicts(op, input, letters);
  std::size_t d = 0;
  for (const Part& part : parts) {
    const bool is_known = !part.literal && dims.has(part.letter);
    const std::size_t length = !part.starred ? 1 : is_known ? dims.extents(part.letter).size() : rank - known;
    const Shape extents(input.shape.begin() + static_cast<std::ptrdiff_t>(d),
                        input.shape.begin() + static_cast<std::ptrdiff_t>(d + length));
    d += length;
    if (part.literal ? extents != Shape{1} : is_known && dims.extents(part.letter) != extents) {
      throw contradicts(
          op, input, letters,
          part.literal ? ""
                       : fmt::format(" with {} = {}", part.letter, to_string(dims.extents(part.letter))));
    }
    if (!part.literal && !is_known) dims.set(part.letter, extents);
  }
}

// Every given name is an input, once; every input that must be there is.
void check_presence(const Operator& op, InputShapes inputs) {
  std::vector<std::string_view> given;
  given.reserve(inputs.size());
  for (const InputShape& input : inputs) {
    input_arg(op, input.name);
    given.push_back(input.name);
  }
  std::ranges::sort(given);
  const auto twice = std::ranges::adjacent_find(given);
  if (twice != given.end()) throw Error("{}: input '{}' is given twice", op.name, *twice);
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
      const auto number = member_number(arg, input.name);
      if (!number || *number < members) continue;
      throw Error("{}: input '{}' is one of {}; expected the numbers 0 to {}", op.name, input.name, members,
                  members - 1);
    }
  }
}

}  // namespace

std::vector<std::int64_t> extents_of(std::string_view letters, const Dims& dims) {
  std::vector<std::int64_t> extents;
  for (const Part& part : parts_of(letters)) extents.push_back(part.literal ? 1 : dims.at(part.letter));
  return extents;
}

std::vector<const Arg*> outputs_made(const Operator& op, std::span<const NamedTensor> inputs) {
  const auto has = [&](const Arg& arg) {
    return std::ranges::any_of(inputs, [&](const NamedTensor& input) { return names(arg, input.name); });
  };
  bool with_backward = op.has_backward;
  for (const Arg& arg : op.args) {
    if (arg.role == Role::grad_output && !arg.optional) with_backward = with_backward && has(arg);
  }
  std::vector<const Arg*> made;
  for (const Arg& arg : op.args) {
    if (is_given(arg) || is_list(arg) || (arg.role == Role::grad_input && !with_backward)) continue;
    // An optional output belongs to the optional input of the same name ("grad_bias" to "bias").
    const bool belongs = arg.optional && arg.name.starts_with("grad_");
    if (!belongs || find_tensor(inputs, arg.name.substr(5)) != nullptr) made.push_back(&arg);
  }
  return made;
}

Shape expand(std::string_view letters, const Dims& dims) {
  Shape shape;
  for (const Part& part : parts_of(letters)) {
    if (part.literal) {
      shape.push_back(1);
    } else {
      const Shape& extents = dims.extents(part.letter);
      shape.insert(shape.end(), extents.begin(), extents.end());
    }
  }
  element_count(shape);
  return shape;
}

Dims bind_dims(const Operator& op, InputShapes inputs, const Attributes& attributes) {
  Dims dims;
  check_presence(op, inputs);
  if (op.bind != nullptr) {
    check_ranks(op, inputs, attributes);
    try {
      op.bind(dims, inputs, attributes);
    } catch (const Error& e) {  // of a part that several operators share
      if (std::string_view(e.what()).starts_with(op.name)) throw;
      throw Error("{}: {}", op.name, e.what());
    }
  }
  for (const InputShape& input : inputs) {
    const Arg& arg = input_arg(op, input.name);
    if (!is_list(arg)) fit(op, input, shape_letters(op, arg, attributes), dims);
  }
  return dims;
}

Shape shape_of(const Operator& op, const Arg& arg, const Dims& dims, const Attributes& attributes) {
  return expand(shape_letters(op, arg, attributes), dims);
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
      std::string word(factor);
      if (word.ends_with('#')) word.replace(word.size() - 1, 1, std::to_string(*member_number(arg, output)));
      const auto literal = whole_number(word);
      const std::int64_t value = literal ? *literal : dims.at(word);
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
