#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "assay/golden/error.h"
#include "assay/operators/engine/generate.h"

/// Calls of operators with tensors that a test writes out.
namespace assay {

inline NamedTensor values(std::string name, Shape shape, std::vector<double> v) {
  return {std::move(name), Tensor::from_values(DType::float64, std::move(shape), v)};
}
inline NamedTensor values(std::string name, std::vector<double> v) {
  const Shape shape = {static_cast<std::int64_t>(v.size())};
  return values(std::move(name), shape, std::move(v));
}
inline NamedTensor zeros(std::string name, Shape shape, DType dtype = DType::float32) {
  return {std::move(name), Tensor(dtype, std::move(shape))};
}
inline NamedTensor indices(std::string name, Shape shape, std::vector<std::int64_t> v) {
  return {std::move(name), Tensor::from_indices(std::move(shape), v)};
}

/// "eps=1e-6,dim=0"
inline Attributes attributes_of(std::string_view text) {
  return parse_call({"", text}).attributes;
}

inline Tensor tensor_of(const std::vector<NamedTensor>& all, std::string_view name) {
  for (const NamedTensor& t : all) {
    if (t.name == name) return t.tensor;
  }
  ADD_FAILURE() << "no output " << name;
  return {};
}

inline std::vector<NamedTensor> golden(std::string_view op, const std::vector<NamedTensor>& inputs,
                                       std::string_view attributes = {}, Level level = Level::fp64) {
  return compute_golden(find_operator(op), inputs, attributes_of(attributes), level);
}
inline Tensor output(std::string_view op, std::string_view name, const std::vector<NamedTensor>& inputs,
                     std::string_view attributes = {}, Level level = Level::fp64) {
  return tensor_of(golden(op, inputs, attributes, level), name);
}

/// A call that cannot be right ends in one Error that says what is wrong.
struct Wrong {
  std::string op;
  std::vector<NamedTensor> inputs;
  std::string attributes, message;
};
inline void expect_error(const Wrong& call) {
  EXPECT_THAT([&] { golden(call.op, call.inputs, call.attributes); },
              testing::ThrowsMessage<Error>(testing::HasSubstr(call.message)))
      << call.op << ' ' << call.attributes;
}

}  // namespace assay
