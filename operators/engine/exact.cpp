#include "assay/operators/engine/exact.h"

#include <algorithm>
#include <functional>

#include "assay/golden/arithmetic.h"
#include "assay/golden/error.h"
#include "assay/golden/float_environment.h"
#include "assay/operators/engine/outputs.h"

namespace assay {
namespace {

// Of an unrounded tensor, without the dimension of the parts.
Shape shape_of_numbers(const Tensor& t) {
  if (t.dtype() != DType::float64 || t.shape().empty() || t.shape()[0] < 1) {
    throw Error("a {} tensor of shape {} is not unrounded; expected float64 [parts, ...]", name(t.dtype()),
                to_string(t.shape()));
  }
  return {t.shape().begin() + 1, t.shape().end()};
}

Shape with_parts(std::int64_t parts, const Shape& shape) {
  Shape longer = {parts};
  longer.insert(longer.end(), shape.begin(), shape.end());
  return longer;
}

std::int64_t count_parts(const Unrounded& number) {
  std::int64_t parts = 1;
  number.for_rest([&](double) { ++parts; });
  return parts;
}

// @param output  the float64 that stands for a computed one
template <class F>
Tensor tensor_of(const Shape& shape, std::span<const Unrounded> numbers, F output) {
  std::int64_t parts = 1;
  for (const Unrounded& number : numbers) parts = std::max(parts, count_parts(number));
  std::vector<double> values(static_cast<std::size_t>(parts) * numbers.size(), -0.0);
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    std::size_t at = i;
    values[at] = output(numbers[i].nearest());
    numbers[i].for_rest([&](double part) { values[at += numbers.size()] = part; });
  }
  return {with_parts(parts, shape), std::span<const double>(values)};
}

// The sum, number by number, of tensors of which each has so many in every part.
std::vector<Unrounded> sums_of(std::span<const Tensor> tensors, std::size_t count) {
  std::vector<std::vector<double>> parts;
  for (const Tensor& t : tensors) parts.push_back(t.values());
  std::vector<Unrounded> sums;
  sums.reserve(count);
  for (std::size_t i = 0; i < count; ++i) {
    UnroundedSum sum;
    for (const std::vector<double>& values : parts) {
      sum.add(static_cast<std::int64_t>(values.size() / count),
              [&](auto part) { return values[static_cast<std::size_t>(part) * count + i]; });
    }
    sums.push_back(sum.value());
  }
  return sums;
}

}  // namespace

std::vector<NamedTensor> compute_exact(const Operator& op, std::span<const NamedTensor> inputs,
                                       const Attributes& attributes) {
  const DefaultFloatEnvironment environment;
  if (op.run_unrounded == nullptr) {
    const SummationScope scope({.exact = true});
    std::vector<NamedTensor> outputs = compute_golden(op, inputs, attributes, Level::fp64);
    for (NamedTensor& output : outputs) {
      if (is_float(output.tensor.dtype())) output.tensor = unrounded(output.tensor);
    }
    return outputs;
  }
  return outputs_of(op, evaluate<Unrounded>(op, inputs, attributes), [](const auto& slot) {
    if (holds_indices(*slot.arg)) return Tensor::from_indices(slot.shape, slot.indices);
    return tensor_of(slot.shape, slot.values, [&](double v) { return output_value(*slot.arg, v); });
  });
}

Tensor add_unrounded(std::span<const Tensor> tensors) {
  if (tensors.empty()) throw Error("there are no tensors to add");
  const Shape shape = shape_of_numbers(tensors[0]);
  for (const Tensor& t : tensors) {
    if (shape_of_numbers(t) != shape) {
      throw Error("unrounded tensors of shapes {} and {} cannot be added; only their parts may differ",
                  to_string(tensors[0].shape()), to_string(t.shape()));
    }
  }
  const DefaultFloatEnvironment environment;
  return tensor_of(shape, sums_of(tensors, static_cast<std::size_t>(element_count(shape))), std::identity());
}

// Parts are what is left of the number by those before: the second says on which side of the first it is.
Tensor round_unrounded(const Tensor& t, DType dtype) {
  const Shape shape = shape_of_numbers(t);
  const DefaultFloatEnvironment environment;
  std::vector<double> values = t.values();
  const auto count = static_cast<std::size_t>(element_count(shape));
  const bool is_wide = dtype == DType::float64 || t.shape().front() == 1;
  for (std::size_t i = 0; i < count && !is_wide; ++i) {
    const double rest = values[count + i];
    if (rest != 0) values[i] = to_odd(values[i], rest < 0);
  }
  values.resize(count);
  return Tensor::from_values(dtype, shape, values);
}

Tensor unrounded(const Tensor& t) {
  return {with_parts(1, t.shape()), std::span<const double>(t.values())};
}

}  // namespace assay
