// Whether a result, or an attribute of its call, is off as a whole by less than single elements show.
#include <algorithm>
#include <cmath>
#include <utility>
#include <variant>
#include <vector>

#include "assay/compare/calls/call.h"
#include "assay/golden/accumulator.h"
#include "assay/golden/error.h"
#include "assay/operators/engine/golden.h"
#include "assay/operators/engine/recorded.h"

namespace assay {
namespace {

// The attributes with one of their numbers a little larger, each with its name.
std::vector<std::pair<Attributes, std::string_view>> nearby_attributes(const Operator& op,
                                                                       const Attributes& given, double step) {
  const Attributes complete = complete_attributes(op, given);
  std::vector<std::pair<Attributes, std::string_view>> all;
  for (const Attribute& a : op.attributes) {
    if (!complete.has(a.name)) continue;
    const AttributeValue value = complete.values().find(a.name)->second;
    const auto set = [&](AttributeValue other) {
      all.emplace_back(complete, a.name);
      all.back().first.set(std::string(a.name), std::move(other));
    };
    if (const double* number = std::get_if<double>(&value); number != nullptr && *number != 0)
      set(*number * (1 + step));
    const auto* list = std::get_if<std::vector<double>>(&value);
    for (std::size_t i = 0; list != nullptr && i < list->size(); ++i) {
      std::vector<double> other = *list;
      other[i] *= 1 + step;
      if (other != *list) set(std::move(other));
    }
  }
  return all;
}

// Behind an output, or behind a statistic that a gradient takes from forward.
std::int64_t longest_sum(const Operator& op, std::string_view output, InputShapes shapes,
                         const Attributes& attributes) {
  std::int64_t most = accumulation_count(op, output, shapes, attributes);
  if (!output.starts_with("grad_")) return most;
  for (const Arg& arg : op.args) {
    if (arg.role == Role::output && !arg.name.ends_with('#'))
      most = std::max(most, accumulation_count(op, arg.name, shapes, attributes));
  }
  return most;
}

}  // namespace

ScaleTest Call::scale_test(const CallVariant& variant) const {
  ScaleTest test;
  const Shape& shape = result_.shape();
  const auto last =
      variant.permutation.empty() ? shape.size() - 1 : static_cast<std::size_t>(variant.permutation.back());
  test.columns = shape.empty() ? 1 : shape[last];
  test.terms = 0;
  for (const Summand& summand : summands_)
    test.terms += longest_sum(*summand.op, summand.output, shapes_of(summand.inputs),
                              complete_attributes(*summand.op, attributes_of(summand, variant)));
  test.rows_share = summands_.front().output.starts_with("grad_");
  test.unit_roundoff = unit_roundoff(arithmetic());
  test.stored_roundoff = unit_roundoff(result_.dtype());
  const std::optional<DType> of_products = narrowest();
  test.may_truncate = of_products && unit_roundoff(*of_products) > unit_roundoff(DType::float32);
  if (!device_.accumulator.empty()) {
    // A step of a matrix unit loses less than one unit of the bits that it keeps.
    const Accumulator a = parse_accumulator(device_.accumulator);
    const double step =
        a.fused > 0 ? std::ldexp(1, -std::min(a.fraction_bits, a.result_bits)) : a.unit_roundoff;
    test.unit_roundoff = std::max(test.unit_roundoff, step);
    test.may_truncate = test.may_truncate || a.truncates || a.fused > 0;
  }
  return test;
}

// Results between steps are kept narrow: of each query those that the elements of its row share. The
// attribute may be kept narrow itself, and a key that all queries see may be off in the same direction in all
// channels.
std::optional<ScaleError> Call::scale_of_attribute(const CallVariant& variant, const Compared& c) const {
  constexpr double step = 0x1p-6;         // of the difference that stands for a derivative
  constexpr double common_roundings = 2;  // of the attribute and of the keys
  const Steered& steered = op().steered;
  const Summand& summand = summands_.front();
  if (steered.attribute.empty() || summands_.size() != 1 || summand.output.starts_with("grad_")) return {};
  std::vector<NamedTensor> inputs = inputs_of(summand, variant, {});
  const Attributes attributes = complete_attributes(op(), attributes_of(summand, variant));
  const std::int64_t sharing = bind_dims(op(), shapes_of(inputs), attributes).at(steered.sharing);
  for (NamedTensor& input : inputs) {
    if (input.name != steered.by) continue;
    std::vector<double> more = input.tensor.values();
    for (double& v : more) v *= 1 + step;
    input.tensor = Tensor(input.tensor.shape(), std::span<const double>(more));
  }
  const std::vector<double> values = c.actual.values(), golden = c.golden.values();
  // Float32 tells a direction well enough.
  std::vector<double> direction =
      part_of(summand, variant,
              compute_golden(op(), inputs, attributes_of(summand, variant), Level::report, summand.output))
          .values();
  std::vector<std::int64_t> units;
  for (std::size_t i = 0; i < direction.size(); ++i) {
    direction[i] = (direction[i] - golden[i]) / step;
    units.push_back(static_cast<std::int64_t>(i) / sharing);
  }
  auto error = scale_error({.actual = values,
                            .golden = golden,
                            .direction = direction,
                            .allowed = c.allowed,
                            .unit_roundoff = unit_roundoff(arithmetic()),
                            .stored_roundoff = unit_roundoff(c.actual.dtype()),
                            .common = common_roundings * device_.stored_roundoff(),
                            .units = {units}});
  if (error) error->attribute = steered.attribute;
  return error;
}

// Elements share what is stored between steps in ways that only the operator knows: it says which share none.
// All of them share the attributes, which may be kept narrow themselves.
std::optional<ScaleError> Call::scale_of_steps(const CallVariant& variant, const Compared& c) const {
  constexpr double common_roundings = 2;  // of an attribute, and of what it is multiplied by
  if (op().steps_apart == nullptr || summands_.size() != 1 || !variant.permutation.empty()) return {};
  const Summand& summand = summands_.front();
  const Attributes attributes = complete_attributes(op(), attributes_of(summand, variant));
  const Dims dims = bind_dims(op(), shapes_of(inputs_of(summand, variant, {})), attributes);
  const std::vector<double> values = c.actual.values(), golden = c.golden.values();
  ScaleTest test = scale_test(variant);
  test.actual = values;
  test.golden = golden;
  test.allowed = c.allowed;
  test.common = common_roundings * device_.stored_roundoff();
  test.apart = op().steps_apart(summand.output, c.actual.shape(), dims, attributes);
  return test.apart.size() == values.size() ? scale_error(test) : std::nullopt;
}

// The derivative by an attribute is what it moves the result by. Other constants and the statistics of rows
// may be off in that direction, too: by Cauchy and Schwarz no more than in all directions together.
std::optional<ScaleError> Call::scale_of_attributes(const CallVariant& variant, const Compared& c) const {
  constexpr double step = 0x1p-20;  // of the difference that stands for a derivative
  // What all elements of a row take from it, at most: its mean, 1 / C, the variance with its eps, the root.
  constexpr double other_constants = 4;
  if (summands_.size() != 1) return {};
  const Summand& summand = summands_.front();
  const std::vector<NamedTensor> inputs = inputs_of(summand, variant, {});
  const std::vector<double> values = c.actual.values(), golden = c.golden.values();
  ScaleTest test = scale_test(variant);
  test.actual = values;
  test.golden = golden;
  test.allowed = c.allowed;
  const double in_golden = ScaleSums(values, golden, c.allowed, test.columns, 0).square;
  std::optional<ScaleError> worst;
  for (const auto& [variant_of, name] : nearby_attributes(op(), attributes_of(summand, variant), step)) {
    std::vector<double> direction;
    try {
      direction =
          part_of(summand, variant, compute_golden(op(), inputs, variant_of, Level::fp64, summand.output))
              .values();
    } catch (const Error&) {  // no number that may be another
      continue;
    }
    for (std::size_t i = 0; i < direction.size(); ++i) direction[i] = (direction[i] - golden[i]) / step;
    test.direction = direction;
    const double in_direction = ScaleSums(values, golden, c.allowed, test.columns, 0, direction).square;
    if (!(in_direction > 0)) continue;
    test.common = other_constants * test.unit_roundoff * std::sqrt(in_golden / in_direction);
    auto error = scale_error(test);
    if (!error || error->within()) continue;
    error->attribute = name;
    if (!worst || std::abs(error->excess) / error->allowed > std::abs(worst->excess) / worst->allowed)
      worst = error;
  }
  return worst;
}

std::optional<ScaleError> Call::scale(const CallVariant& variant, const Compared& c) const {
  if (device_.intermediate) {
    auto of_attribute = scale_of_attribute(variant, c);
    if (of_attribute && !of_attribute->within()) return of_attribute;
    if (op().shares_steps) {
      auto of_groups = scale_of_steps(variant, c);
      return of_groups && !of_groups->within() ? of_groups : of_attribute;
    }
  }
  const Tensor& actual = c.actual;
  const std::vector<double> values = actual.values(), golden = c.golden.values();
  ScaleTest test = scale_test(variant);
  test.actual = values;
  test.golden = golden;
  test.allowed = c.allowed;
  if (op().shared_roundings != nullptr) {
    test.units.push_back(
        op().shared_roundings(actual.shape(), complete_attributes(op(), variant.attributes)));
    if (test.units.back().empty()) test.units.pop_back();
  }
  const std::int64_t columns = actual.shape().empty() ? 1 : std::max<std::int64_t>(actual.shape().back(), 1);
  const auto number = [&](auto unit_of) {
    std::vector<std::int64_t>& units = test.units.emplace_back();
    for (std::int64_t i = 0; i < actual.size(); ++i) units.push_back(unit_of(i));
  };
  // All elements of a row share the roundings of a statistic that was kept narrow.
  const bool is_gradient = summands_.front().output.starts_with("grad_");
  if (is_gradient && op().keeps_statistics && device_.intermediate)
    number([&](std::int64_t i) { return i / columns; });
  if (device_.intermediate && summands_.size() == 1) {
    for (const NamedTensor& input : inputs_of(summands_.front(), variant, {})) {
      if (is_float(input.tensor.dtype()) && input.tensor.shape() == actual.shape())
        test.inputs.push_back(input.tensor.values());
    }
  }
  return scale_error(test);
}

}  // namespace assay
