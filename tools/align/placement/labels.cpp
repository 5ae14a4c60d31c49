#include "assay/align/placement/labels.h"

#include <fmt/format.h>

#include <algorithm>

#include "assay/golden/error.h"
#include "assay/operators/engine/binding.h"

namespace assay::align {
namespace {

using Names = std::vector<std::string>;

std::string_view same_as(const Operator& op, std::string_view letter) {
  const auto row = std::ranges::find(op.same_axis, letter, &SameAxis::letter);
  return row == op.same_axis.end() ? letter : row->same;
}

Names numbered(std::string_view prefix, std::size_t count) {
  Names names;
  for (std::size_t i = 0; i < count; ++i) names.push_back(fmt::format("{}{}", prefix, i));
  return names;
}

std::size_t dimension(double dim, std::size_t rank) {
  return static_cast<std::size_t>(dim < 0 ? dim + static_cast<double>(rank) : dim);
}

}  // namespace

Labels::Labels(const Operator& op, const std::vector<NamedValue>& inputs, const Attributes& attributes,
               const std::vector<NamedValue>& outputs) {
  const Attributes complete = complete_attributes(op, attributes);
  if (op.dims_in_result != nullptr)
    by_dims(op, inputs, complete, outputs);
  else
    by_letters(op, inputs, complete, outputs);
}

void Labels::by_dims(const Operator& op, const std::vector<NamedValue>& inputs, const Attributes& attributes,
                     const std::vector<NamedValue>& outputs) {
  const Shape& y = outputs.front().value.shape;
  for (const NamedValue& output : outputs) of_[output.name] = numbered("Y", y.size());
  for (const NamedValue& x : inputs) {
    Names& names = of_[x.name];
    for (const std::int64_t dim : op.dims_in_result(x.value.shape, y, attributes))
      names.push_back(dim == not_in_result ? fmt::format("{} {}", x.name, names.size())
                                           : fmt::format("Y{}", dim));
  }
}

void Labels::by_letters(const Operator& op, const std::vector<NamedValue>& inputs,
                        const Attributes& attributes, const std::vector<NamedValue>& outputs) {
  std::vector<InputShape> shapes;
  for (const NamedValue& x : inputs) shapes.push_back({x.name, x.value.shape, nullptr});
  const Dims dims = bind_dims(op, shapes, attributes);
  const auto label = [&](const NamedValue& tensor, const Arg& arg) {
    Names& names = of_[tensor.name];
    for (const Part& part : parts_of(shape_letters(op, arg, attributes))) {
      const std::size_t count = part.starred ? dims.extents(part.letter).size() : 1;
      for (const std::string& name : numbered(same_as(op, part.letter), count)) names.push_back(name);
    }
  };
  for (const NamedValue& x : inputs) label(x, input_arg(op, x.name));
  for (const NamedValue& y : outputs) {
    const auto arg = std::ranges::find(op.args, std::string_view(y.name), &Arg::name);
    label(y, *arg);
    // Along it elements depend on each other: softmax, cumsum.
    const bool mixes = attributes.has("dim") && op.rows != Rows::routed;
    if (mixes) of_[y.name].at(dimension(attributes.real("dim"), of_[y.name].size())) = "mixed";
  }
}

}  // namespace assay::align
