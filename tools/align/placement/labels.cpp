#include "assay/align/placement/labels.h"

#include <fmt/format.h>

#include <algorithm>

#include "assay/golden/error.h"
#include "assay/operators/engine/binding.h"

namespace assay::align {
namespace {

using Names = std::vector<std::string>;

// Letters that count the same things though their extents may differ: heads of queries and of keys, the
// tokens of both; the rows of an operator that puts tokens in another order; those of what is added.
std::string_view same_as(const Operator& op, std::string_view letter) {
  struct Alias {
    std::string_view op, letter, same;
  };
  static constexpr Alias aliases[] = {
      {"attention", "G", "H"},    {"attention", "S", "L"},     {"grouped_matmul", "G", "T"},
      {"moe_permute", "P", "N"},  {"moe_unpermute", "P", "N"}, {"index_select", "R", "N"},
      {"index_select", "C", "N"}, {"scatter_add", "I", "X"},   {"scatter_add", "S", "X"},
      {"gather", "I", "X"},
  };
  for (const Alias& alias : aliases) {
    if (alias.op == op.name && alias.letter == letter) return alias.same;
  }
  return letter;
}

Names numbered(std::string_view prefix, std::size_t count) {
  Names names;
  for (std::size_t i = 0; i < count; ++i) names.push_back(fmt::format("{}{}", prefix, i));
  return names;
}

std::size_t dimension(double dim, std::size_t rank) {
  return static_cast<std::size_t>(dim < 0 ? dim + static_cast<double>(rank) : dim);
}

// Dimension i of x is dimension j of y if as many elements stand before both; the last such j, for those
// before it have extent 1.
Names reshaped(const Names& names, const Shape& x, const Shape& y) {
  Names result = numbered("new", y.size());
  std::int64_t before_x = 1;
  for (std::size_t i = 0; i < x.size(); before_x *= x[i++]) {
    std::int64_t before_y = 1;
    for (std::size_t j = 0; j < y.size(); before_y *= y[j++]) {
      if (before_x == before_y && (y[j] != 1 || x[i] == 1)) result[j] = names[i];
    }
  }
  return result;
}

// Dimensions are aligned from the back; what is repeated is a dimension of y alone.
Names broadcast(const Names& names, const Shape& x, const Shape& y) {
  Names result = numbered("new", y.size());
  for (std::size_t k = 1; k <= x.size(); ++k) {
    if (x[x.size() - k] == y[y.size() - k]) result[y.size() - k] = names[x.size() - k];
  }
  return result;
}

// Without the dimensions that are reduced, or with 1 instead: all if none is named.
Names reduced(const Names& names, const Attributes& attributes) {
  const char* const key = attributes.has("dim") ? "dim" : "dims";
  if (!attributes.has(key)) return {};
  const bool keeps = attributes.has("keepdim") && attributes.flag("keepdim");
  Names result = names;
  for (const double dim : attributes.list(key)) {
    const auto at = std::ranges::find(result, names[dimension(dim, names.size())]);
    if (keeps)
      *at = "reduced";
    else
      result.erase(at);
  }
  return result;
}

// Names of y in the dimensions that x shares with it.
Names aligned(const Shape& x, const Shape& y, std::string_view own) {
  Names result;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const std::size_t j = i + y.size() - x.size();
    result.push_back(fmt::format("{}{}", x[i] == y[j] ? "Y" : own, j));
  }
  return result;
}

}  // namespace

Labels::Labels(const Operator& op, const std::vector<NamedValue>& inputs, const Attributes& attributes,
               const std::vector<NamedValue>& outputs) {
  const NamedValue& y = outputs.front();
  static constexpr std::string_view binary[] = {"add", "sub", "mul", "div"},
                                    rearranging[] = {"reshape", "transpose", "slice",      "concat",
                                                     "expand",  "logsumexp", "reduce_sum", "reduce_max"};
  if (std::ranges::find(binary, op.name) != std::end(binary)) {
    of_[y.name] = aligned(y.value.shape, y.value.shape, "Y");
    for (const NamedValue& x : inputs) of_[x.name] = aligned(x.value.shape, y.value.shape, x.name);
  } else if (std::ranges::find(rearranging, op.name) != std::end(rearranging)) {
    moved(op, inputs, attributes, y);
    for (const NamedValue& other : outputs) of_[other.name] = of_[y.name];  // where the largest was
  } else {
    by_letters(op, inputs, attributes, outputs);
  }
}

void Labels::by_letters(const Operator& op, const std::vector<NamedValue>& inputs,
                        const Attributes& attributes, const std::vector<NamedValue>& outputs) {
  const Attributes complete = complete_attributes(op, attributes);
  std::vector<InputShape> shapes;
  for (const NamedValue& x : inputs) shapes.push_back({x.name, x.value.shape, nullptr});
  const Dims dims = bind_dims(op, shapes, complete);
  const auto label = [&](const NamedValue& tensor, const Arg& arg) {
    Names& names = of_[tensor.name];
    for (const Part& part : parts_of(shape_letters(op, arg, complete))) {
      const std::size_t count = part.starred ? dims.extents(part.letter).size() : 1;
      for (const std::string& name : numbered(same_as(op, part.letter), count)) names.push_back(name);
    }
  };
  for (const NamedValue& x : inputs) label(x, input_arg(op, x.name));
  for (const NamedValue& y : outputs) {
    const auto arg = std::ranges::find(op.args, std::string_view(y.name), &Arg::name);
    label(y, *arg);
    // Along it elements depend on each other: softmax, cumsum.
    const bool mixes = complete.has("dim") && op.name != "index_select";
    if (mixes) of_[y.name].at(dimension(complete.real("dim"), of_[y.name].size())) = "mixed";
  }
}

void Labels::moved(const Operator& op, const std::vector<NamedValue>& inputs, const Attributes& attributes,
                   const NamedValue& output) {
  const Shape& y = output.value.shape;
  for (const NamedValue& x : inputs) of_[x.name] = numbered("X", x.value.shape.size());
  const NamedValue& x = inputs.front();
  const Names& names = of_[x.name];
  Names& result = of_[output.name];
  if (op.name == "reshape") {
    result = reshaped(names, x.value.shape, y);
  } else if (op.name == "expand") {
    result = broadcast(names, x.value.shape, y);
  } else if (op.name == "transpose") {
    for (const double from : attributes.list("perm")) result.push_back(names[dimension(from, y.size())]);
  } else if (op.name == "slice") {
    result = names;
    for (const double dim : attributes.list("dims")) result[dimension(dim, y.size())] = "part";
  } else if (op.name == "concat") {
    result = names;
    const std::size_t along = dimension(attributes.real("dim"), y.size());
    result[along] = "joined";
    for (const NamedValue& each : inputs) of_[each.name][along] = "part of " + each.name;
  } else {
    result = reduced(names, attributes);
  }
}

}  // namespace assay::align
