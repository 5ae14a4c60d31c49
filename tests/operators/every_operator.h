#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "assay/operators/engine/binding.h"
#include "assay/operators/engine/generate.h"

/// What every operator must hold to, at each of its examples: a new operator is tested by being in the list.
namespace assay {

inline constexpr ErrorModel float32_model{0x1p-24, 0x1p-149}, float64_model{0x1p-53, 0x1p-1074};

/// Outputs as scalars of the level, by name.
template <class T>
std::map<std::string, std::vector<T>> outputs(const Operator& op, const std::vector<NamedTensor>& inputs,
                                              const Attributes& attributes) {
  std::map<std::string, std::vector<T>> found;
  const Tensors<T> tensors = evaluate<T>(op, inputs, attributes);
  for (const auto& made : tensors.slots()) {
    const bool given =
        std::ranges::any_of(inputs, [&](const NamedTensor& t) { return t.name == made.first; });
    if (!given) found[made.first] = made.second.values;
  }
  return found;
}

inline std::map<std::string, std::vector<Bound>> bounds(const Operator& op,
                                                        const std::vector<NamedTensor>& inputs,
                                                        const Attributes& attributes,
                                                        const ErrorModel& model) {
  const ErrorScope scope(model);
  return outputs<Bound>(op, inputs, attributes);
}

inline double magnitude(const std::vector<double>& values) {
  double largest = 0;
  for (const double v : values) largest = std::max(largest, std::abs(v));
  return largest;
}

/// The same tensor with one element replaced.
inline Tensor with_element(const Tensor& tensor, std::int64_t position, double value) {
  std::vector<double> values = tensor.values();
  values[static_cast<std::size_t>(position)] = value;
  return Tensor::from_values(tensor.dtype(), tensor.shape(), values);
}

/// Positions spread over a tensor, all of them if it is small.
inline std::vector<std::int64_t> sample(std::int64_t size) {
  constexpr std::int64_t most_elements = 40;  // every one costs an evaluation
  std::vector<std::int64_t> positions;
  const std::int64_t step = std::max<std::int64_t>(1, (size + most_elements - 1) / most_elements);
  for (std::int64_t i = 0; i < size; i += step) positions.push_back(i);
  return positions;
}

class EveryOperator : public testing::TestWithParam<const Operator*> {
 protected:
  const Operator& op = *GetParam();
  std::vector<CallShape> calls() const {
    std::vector<CallShape> all;
    for (const Example& example : op.examples) all.push_back(parse_call(example));
    return all;
  }
};

}  // namespace assay
