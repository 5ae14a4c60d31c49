// Whether a result, or an attribute of its call, is off as a whole by less than single elements show.
#include <algorithm>
#include <cmath>

#include "assay/compare/calls/call.h"
#include "assay/golden/accumulator.h"
#include "assay/operators/engine/golden.h"
#include "assay/operators/engine/recorded.h"

namespace assay {

ScaleTest Call::scale_test(const CallVariant& variant) const {
  ScaleTest test;
  const Shape& shape = result_.shape();
  const auto last =
      variant.permutation.empty() ? shape.size() - 1 : static_cast<std::size_t>(variant.permutation.back());
  test.columns = shape.empty() ? 1 : shape[last];
  test.terms = 0;
  for (const Summand& summand : summands_)
    test.terms += accumulation_count(*summand.op, summand.output, shapes_of(summand.inputs),
                                     complete_attributes(*summand.op, attributes_of(summand, variant)));
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
  std::vector<double> direction =
      part_of(summand, variant,
              compute_golden(op(), inputs, attributes_of(summand, variant), Level::fp64, summand.output))
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

std::optional<ScaleError> Call::scale(const CallVariant& variant, const Compared& c) const {
  if (device_.intermediate) {
    auto of_attribute = scale_of_attribute(variant, c);
    if (op().shares_steps || (of_attribute && !of_attribute->within())) return of_attribute;
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
  // All elements of a row share the roundings of a statistic that was kept narrow, those of a channel that of
  // weight + 1.
  const bool is_gradient = summands_.front().output.starts_with("grad_");
  if (is_gradient && op().keeps_statistics && device_.intermediate)
    number([&](std::int64_t i) { return i / columns; });
  if (variant.weight == CallVariant::Weight::plus_one && device_.intermediate)
    number([&](std::int64_t i) { return i % columns; });
  if (device_.intermediate && summands_.size() == 1) {
    for (const NamedTensor& input : inputs_of(summands_.front(), variant, {})) {
      if (is_float(input.tensor.dtype()) && input.tensor.shape() == actual.shape())
        test.inputs.push_back(input.tensor.values());
    }
  }
  return scale_error(test);
}

}  // namespace assay
