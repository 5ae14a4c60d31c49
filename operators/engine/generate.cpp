#include "assay/operators/engine/generate.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "assay/golden/error.h"
#include "assay/operators/engine/binding.h"

namespace assay {
namespace {

// SplitMix64's finalizer (Steele, Lea and Flood 2014): every element has its own number, in any order.
std::uint64_t mix(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

// A tensor's random numbers: by seed, name and position.
class Random {
 public:
  Random(std::uint64_t seed, std::string_view name) : key_(mix(seed)) {
    for (const char c : name) key_ = mix(key_ ^ static_cast<unsigned char>(c));
  }
  std::uint64_t bits(std::int64_t position) const {
    return mix(key_ ^ mix(static_cast<std::uint64_t>(position)));
  }
  /// Uniform in [0, 1).
  double unit(std::int64_t position) const { return static_cast<double>(bits(position) >> 11) * 0x1p-53; }
  /// Uniform among low .. high.
  std::int64_t integer(std::int64_t position, std::int64_t low, std::int64_t high) const {
    const auto count = static_cast<std::uint64_t>(high - low) + 1;
    return low + static_cast<std::int64_t>(bits(position) % count);
  }

 private:
  std::uint64_t key_;
};

double integer_value(const Operator& op, const Arg& arg, const Random& random, std::int64_t i) {
  if (op.exact_fill == ExactFill::powers_of_two) {
    const double power = std::ldexp(1.0, static_cast<int>(random.integer(i, -1, 1)));
    return random.bits(~i) % 2 == 0 ? power : -power;
  }
  const auto low = static_cast<std::int64_t>(std::ceil(std::max(arg.low, -4.0)));
  const auto high = static_cast<std::int64_t>(std::floor(std::min(arg.high, 4.0)));
  return static_cast<double>(random.integer(i, low, std::max(low, high)));
}

double special_value(DType dtype, std::uint64_t which) {
  const double values[] = {0.,
                           -0.,
                           infinity,
                           -infinity,
                           std::nan(""),
                           max_finite(dtype),
                           -max_finite(dtype),
                           min_subnormal(dtype),
                           -min_subnormal(dtype),
                           1.,
                           -1.,
                           88.75,
                           -88.75};
  return values[which % std::size(values)];
}

Tensor fill_values(const Operator& op, const Arg& arg, const std::string& name, const Shape& shape, Fill fill,
                   DType dtype, std::uint64_t seed) {
  const Random random(seed, name);
  std::vector<double> values(static_cast<std::size_t>(element_count(shape)));
  for (std::size_t p = 0; p < values.size(); ++p) {
    const auto i = static_cast<std::int64_t>(p);
    const std::uint64_t dice = random.bits(~i);
    if (fill == Fill::integer) {
      values[p] = integer_value(op, arg, random, i);
    } else if (fill == Fill::special && dice % 4 == 0) {
      values[p] = special_value(dtype, dice / 4);
    } else {
      values[p] = arg.low + (arg.high - arg.low) * random.unit(i);
    }
    if (std::isfinite(values[p])) values[p] = arg.domain.clip(values[p]);
  }
  return Tensor::from_values(dtype, shape, values);
}

// Parts of a whole, cut at random places: some may be empty.
Tensor fill_parts(const Operator& op, const Arg& arg, const Shape& shape, const Dims& dims,
                  std::uint64_t seed) {
  const Random random(seed, arg.name);
  const std::int64_t whole = dims.at(arg.sums_to);
  std::vector<std::int64_t> parts(static_cast<std::size_t>(element_count(shape)));
  if (parts.empty() && whole > 0)
    throw Error("{}: '{}' has no element; expected a sum of {} = {}", op.name, arg.name, arg.sums_to, whole);
  std::vector<std::int64_t> cuts;
  for (std::size_t i = 0; i < parts.size(); ++i)
    cuts.push_back(i == 0 ? 0 : random.integer(static_cast<std::int64_t>(i), 0, whole));
  std::ranges::sort(cuts);
  for (std::size_t i = 0; i < parts.size(); ++i)
    parts[i] = (i + 1 < cuts.size() ? cuts[i + 1] : whole) - cuts[i];
  return Tensor::from_indices(shape, parts);
}

// Every eighth index is the excepted one (ignored targets), but not the first: something must be left.
Tensor fill_indices(const Operator& op, const Arg& arg, const Shape& shape, const Dims& dims,
                    const Attributes& attributes, std::uint64_t seed) {
  if (!arg.sums_to.empty()) return fill_parts(op, arg, shape, dims, seed);
  const Random random(seed, arg.name);
  const bool bounded = !arg.indexes.empty();
  const std::int64_t low = bounded ? 0 : static_cast<std::int64_t>(arg.low);
  const std::int64_t high = bounded ? dims.at(arg.indexes) - 1 : static_cast<std::int64_t>(arg.high);
  std::vector<std::int64_t> indices(static_cast<std::size_t>(element_count(shape)));
  if (high < low && !indices.empty()) {
    throw Error("{}: '{}' has no legal index, for {} is 0", op.name, arg.name, arg.indexes);
  }
  const bool excepted = !arg.except.empty() && attributes.has(arg.except);
  for (std::size_t p = 0; p < indices.size(); ++p) {
    const auto i = static_cast<std::int64_t>(p);
    indices[p] = random.integer(i, low, high);
    if (!excepted) continue;
    const std::int64_t except = attributes.integer(arg.except);
    if (p > 0 && random.bits(~i) % 8 == 0) indices[p] = except;
    if (p == 0 && indices[p] == except) indices[p] = except == low ? high : low;
  }
  return Tensor::from_indices(shape, indices);
}

// "a=[1,2],b=3" at the commas outside of brackets and quotes.
std::vector<std::pair<std::string, std::string>> assignments(std::string_view text) {
  std::vector<std::pair<std::string, std::string>> found;
  while (!text.empty()) {
    bool bracket = false, quote = false;
    std::size_t end = 0;
    for (; end < text.size() && (text[end] != ',' || bracket || quote); ++end) {
      if (text[end] == '"') quote = !quote;
      if (text[end] == '[' || text[end] == ']') bracket = text[end] == '[';
    }
    const std::string_view item = text.substr(0, end);
    const auto equals = item.find('=');
    if (equals == std::string_view::npos) throw Error("'{}' is no NAME=VALUE", item);
    found.emplace_back(item.substr(0, equals), item.substr(equals + 1));
    text = end < text.size() ? text.substr(end + 1) : std::string_view();
  }
  return found;
}

// "2x3", "" for a scalar.
Shape parse_shape(std::string_view text) {
  Shape shape;
  if (text.ends_with('x')) throw Error("'{}' is no extent; expected numbers like 2x3", text);
  while (!text.empty()) {
    const auto x = text.find('x');
    const std::string_view digits = text.substr(0, x);
    const auto [end, error] =
        std::from_chars(digits.data(), digits.data() + digits.size(), shape.emplace_back());
    if (error != std::errc() || end != digits.data() + digits.size() || shape.back() < 0) {
      throw Error("'{}' is no extent; expected numbers like 2x3", digits);
    }
    text = x == std::string_view::npos ? std::string_view() : text.substr(x + 1);
  }
  return shape;
}

}  // namespace

Fill parse_fill(std::string_view text) {
  constexpr std::pair<std::string_view, Fill> fills[] = {
      {"random", Fill::random}, {"integer", Fill::integer}, {"special", Fill::special}};
  for (const auto& [name, fill] : fills) {
    if (name == text) return fill;
  }
  throw Error("there is no fill '{}'; expected random, integer or special", text);
}

CallShape parse_call(const Example& example) {
  CallShape call;
  for (const auto& [letter, extents] : assignments(example.sizes)) call.sizes[letter] = parse_shape(extents);
  for (const auto& [name, value] : assignments(example.attributes)) {
    call.attributes.set(name, parse_attribute(value));
  }
  for (std::string_view rest = example.leave_out; !rest.empty();) {
    const auto comma = rest.find(',');
    call.leave_out.emplace_back(rest.substr(0, comma));
    rest = comma == std::string_view::npos ? std::string_view() : rest.substr(comma + 1);
  }
  return call;
}

std::vector<NamedTensor> generate_inputs(const Operator& op, const CallShape& call, Fill fill, DType dtype,
                                         std::uint64_t seed) {
  const Attributes attributes = complete_attributes(op, call.attributes);
  Dims sizes;
  for (const auto& [letter, extents] : call.sizes) sizes.set(letter, extents);

  const auto left_out = [&](const Arg& arg) {
    return std::ranges::find(call.leave_out, arg.name) != call.leave_out.end();
  };

  // The shapes of the inputs first: those of the gradients follow from them, but for lists.
  std::vector<std::pair<const Arg*, InputShape>> given;
  for (const Arg& arg : op.args) {
    if (!is_given(arg) || left_out(arg) || (arg.role == Role::grad_output && !is_list(arg))) continue;
    if (!is_list(arg)) {
      given.push_back({&arg, {std::string(arg.name), shape_of(op, arg, sizes, attributes)}});
      continue;
    }
    for (std::int64_t i = 0;; ++i) {
      const std::string member = std::string(arg.name.substr(0, arg.name.size() - 1)) + std::to_string(i);
      const auto size = call.sizes.find(member);
      if (size == call.sizes.end()) break;
      given.push_back({&arg, {member, size->second}});
    }
  }
  std::vector<InputShape> shapes;
  for (const auto& [arg, input] : given) shapes.push_back(input);
  const Dims dims = bind_dims(op, shapes, attributes);
  for (const Arg& arg : op.args) {
    if (arg.role != Role::grad_output || left_out(arg) || is_list(arg)) continue;
    given.push_back({&arg, {std::string(arg.name), shape_of(op, arg, dims, attributes)}});
  }

  std::vector<NamedTensor> inputs;
  for (const auto& [arg, input] : given) {
    inputs.push_back({input.name, arg->role == Role::index
                                      ? fill_indices(op, *arg, input.shape, dims, attributes, seed)
                                      : fill_values(op, *arg, input.name, input.shape, fill, dtype, seed)});
  }
  return inputs;
}

}  // namespace assay
