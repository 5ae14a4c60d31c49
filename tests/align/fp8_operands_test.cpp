// What a replay of fp8 products expects, beside what a rank's matmul makes of its pieces.
#include "assay/compare/calls/fp8_operands.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "assay/align/arithmetic/fp8_matmul.h"
#include "assay/align/arithmetic/pieces.h"
#include "assay/golden/error.h"
#include "expected.h"

namespace assay::align::fp8_operands_test {
namespace {

using enum TokenBlocks;
using Inputs = std::vector<NamedTensor>;

constexpr std::int64_t tokens = 150, in = 200, out = 140;

Tensor drawn_matrix(const char* what, double scale, const Shape& shape) {
  std::vector<double> values = drawn(what, element_count(shape));
  for (double& v : values) v *= scale;
  return Tensor::from_values(DType::float32, shape, values);
}

Inputs whole_inputs() {
  return {{"x", drawn_matrix("x", 4, {tokens, in})},
          {"w", drawn_matrix("w", 1, {out, in})},
          {"grad_y", drawn_matrix("grad_y", 1e-5, {tokens, out})}};
}

Tensor of_rank(const Inputs& inputs, const char* result, const Attributes& attributes = {}) {
  const bool is_grouped = find_tensor(inputs, "group_sizes") != nullptr;
  return output_named(fp8_matmul(find_operator(is_grouped ? "grouped_matmul" : "linear"), inputs, attributes),
                      result);
}

std::vector<double> sum(const Tensor& a, const Tensor& b) {
  std::vector<double> values = a.values();
  for (std::size_t i = 0; i < values.size(); ++i) values[i] += b.value(static_cast<std::int64_t>(i));
  return values;
}

std::vector<double> magnitude_of(const char* result, const Operator& op, Inputs inputs,
                                 const Attributes& attributes) {
  for (NamedTensor& input : inputs) {
    if (!is_float(input.tensor.dtype())) continue;
    std::vector<double> values = input.tensor.values();
    for (double& v : values) v = std::abs(v);
    input.tensor = Tensor::from_values(DType::float64, input.tensor.shape(), values);
  }
  return output_named(compute_golden(op, inputs, attributes, Level::fp64, result), result).values();
}

// How far a result is from the product of the operands that are read back, in roundings of float32 to the
// length of its sums: at most 1 for a right one.
double off(const std::vector<double>& found, const char* result, Inputs inputs,
           const std::vector<CutInput>& cuts, TokenBlocks where, const Attributes& attributes = {}) {
  const Operator& op =
      find_operator(find_tensor(inputs, "group_sizes") != nullptr ? "grouped_matmul" : "linear");
  take_fp8(result, inputs, cuts, where);
  const std::vector<double> want =
      output_named(compute_golden(op, inputs, attributes, Level::fp64, result), result).values();
  const std::vector<double> magnitude = magnitude_of(result, op, inputs, attributes);
  const double within = static_cast<double>(in + out) * unit_roundoff(DType::float32);
  double worst = 0;
  for (std::size_t i = 0; i < want.size(); ++i) {
    const double error = std::abs(found.at(i) - want[i]);
    worst = std::max(worst, error == 0 ? 0 : error / (within * magnitude[i]));
  }
  return worst;
}

TEST(Fp8Operands, WithoutCutsTheyAreThoseOfOneMatmul) {
  for (const char* result : {"y", "grad_x", "grad_w"})
    EXPECT_LE(off(of_rank(whole_inputs(), result).values(), result, whole_inputs(), {}, gathered), 1)
        << result;
}

TEST(Fp8Operands, ARankHasBlocksOfItsOwn) {
  constexpr std::int64_t half = out / 2;
  const Inputs all = whole_inputs();
  const auto rank = [&](std::int64_t begin, std::int64_t end) {
    return Inputs{
        all[0], {"w", piece(all[1].tensor, 0, begin, end)}, {"grad_y", piece(all[2].tensor, 1, begin, end)}};
  };
  const Inputs first = rank(0, half), second = rank(half, out);
  const Parts halves = {{{0, half}}, {{half, out}}};
  const std::vector<CutInput> cuts = {{"w", {halves, {}}}, {"grad_y", {{}, halves}}};
  const auto joined_along = [&](const char* result, std::size_t dim) {
    return joined(std::vector{of_rank(first, result), of_rank(second, result)}, dim).values();
  };
  const std::pair<const char*, std::vector<double>> results[] = {
      {"y", joined_along("y", 1)},
      {"grad_x", sum(of_rank(first, "grad_x"), of_rank(second, "grad_x"))},
      {"grad_w", joined_along("grad_w", 0)}};
  for (const auto& [result, values] : results)
    EXPECT_LE(off(values, result, all, cuts, gathered), 1) << result;
  EXPECT_GT(off(results[0].second, "y", all, {}, gathered), 10);
  EXPECT_GT(off(results[1].second, "grad_x", all, {}, gathered), 10);
}

// Context parallelism gives the first rank the first and the last tokens.
TEST(Fp8Operands, TokensOfARankMayHaveBlocksOfTheirOwn) {
  const Inputs all = whole_inputs();
  const auto rank = [&](const std::vector<std::int64_t>& rows) {
    return Inputs{
        {"x", selected_rows(all[0].tensor, rows)}, all[1], {"grad_y", selected_rows(all[2].tensor, rows)}};
  };
  std::vector<std::int64_t> outer, inner;
  for (std::int64_t t = 0; t < tokens; ++t) (t < 30 || t >= 120 ? outer : inner).push_back(t);
  const Parts zigzag = {{{0, 30}, {120, tokens}}, {{30, 120}}};
  const std::vector<CutInput> cuts = {{"x", {zigzag, {}}}, {"grad_y", {zigzag, {}}}};
  const std::vector<double> found = sum(of_rank(rank(outer), "grad_w"), of_rank(rank(inner), "grad_w"));
  EXPECT_LE(off(found, "grad_w", all, cuts, cut), 1);
  EXPECT_GT(off(found, "grad_w", all, cuts, gathered), 10);
}

Inputs grouped_inputs(const std::vector<std::int64_t>& sizes) {
  Inputs inputs = whole_inputs();
  const Tensor w = inputs[1].tensor;
  std::vector<double> doubled = w.values();
  for (double& v : doubled) v *= 2;
  const Tensor other = Tensor::from_values(DType::float32, w.shape(), doubled);
  inputs[1].tensor = joined(
      std::vector{w.reshaped({1, out, in}), other.reshaped({1, out, in}), w.reshaped({1, out, in})}, 0);
  inputs.push_back({"group_sizes", Tensor::from_indices({std::ssize(sizes)}, sizes)});
  return inputs;
}

TEST(Fp8Operands, EachExpertHasBlocksOfItsOwn) {
  const Attributes transposed = {{"transpose_weight", true}};
  const Inputs inputs = grouped_inputs({40, 0, 110});
  for (const char* result : {"y", "grad_x", "grad_w"})
    EXPECT_LE(off(of_rank(inputs, result, transposed).values(), result, inputs, {}, gathered, transposed), 1)
        << result;
  const Inputs others = grouped_inputs({60, 0, 90});
  EXPECT_GT(off(of_rank(inputs, "grad_w", transposed).values(), "grad_w", others, {}, gathered, transposed),
            10);
}

TEST(Fp8Operands, GroupsThatAreNoneAreSaid) {
  for (const std::vector<std::int64_t>& sizes :
       {std::vector<std::int64_t>{40, -1, 110}, {100, 51, 0}, {INT64_MAX, INT64_MAX, 2}}) {
    Inputs inputs = grouped_inputs(sizes);
    EXPECT_THROW(take_fp8("grad_w", inputs, {}, gathered), Error) << sizes[1];
  }
}

}  // namespace
}  // namespace assay::align::fp8_operands_test
