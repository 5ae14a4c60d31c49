#include "calls.h"

// Sums of products: exact zeros, agreement with matmul, and errors for bad calls.
namespace assay::contractions_test {
namespace {

using testing::ElementsAre;

// Nothing is multiplied by 0 there: a NaN of another group does not reach the gradient of an empty one.
TEST(GroupedMatMul, AnEmptyGroupHasAGradientOfExactlyZero) {
  const std::vector<NamedTensor> inputs = {
      values("x", {1, 1}, {std::nan("")}), values("w", {3, 1, 1}, {2, 3, 4}),
      indices("group_sizes", {3}, {0, 1, 0}), values("grad_y", {1, 1}, {5})};
  const std::vector<double> grad_w = output("grouped_matmul", "grad_w", inputs, "").values();
  EXPECT_THAT(grad_w, ElementsAre(0, testing::IsNan(), 0));
  EXPECT_THAT(output("grouped_matmul", "grad_x", inputs, "").values(), ElementsAre(15));
}

TEST(GroupedMatMul, CountsAllRowsWhereTheSizesAreNotKnown) {
  const std::vector<InputShape> shapes = {{"x", {8, 5}}, {"w", {3, 5, 4}}, {"group_sizes", {3}}};
  EXPECT_EQ(accumulation_count(find_operator("grouped_matmul"), "grad_w", shapes, {}), 8);
  const Tensor sizes = indices("", {3}, {5, 0, 3}).tensor;
  const std::vector<InputShape> known = {{"x", {8, 5}}, {"w", {3, 5, 4}}, {"group_sizes", {3}, &sizes}};
  EXPECT_EQ(accumulation_count(find_operator("grouped_matmul"), "grad_w", known, {}), 5);
}

TEST(GroupedMatMul, OneGroupIsMatMulBitForBitAndSoIsEinsum) {
  const Operator& matmul = find_operator("matmul");
  const auto inputs =
      generate_inputs(matmul, parse_call({"A=,M=6,K=31,B=,N=10"}), Fill::random, DType::float32, 1);
  const auto renamed = [&](std::string_view a, std::string_view b, Shape b_shape) {
    return std::vector<NamedTensor>{{std::string(a), inputs[0].tensor},
                                    {std::string(b), inputs[1].tensor.reshaped(std::move(b_shape))},
                                    {"grad_y", inputs[2].tensor}};
  };
  std::vector<NamedTensor> grouped = renamed("x", "w", {1, 31, 10});
  grouped.push_back(indices("group_sizes", {1}, {6}));
  const std::vector<NamedTensor> summed = renamed("x_0", "x_1", {31, 10});
  const char* const names[][3] = {
      {"y", "y", "y"}, {"grad_a", "grad_x", "grad_x_0"}, {"grad_b", "grad_w", "grad_x_1"}};
  for (const auto& [of_matmul, of_grouped, of_einsum] : names) {
    const std::vector<double> expected = output("matmul", of_matmul, inputs, "").values();
    EXPECT_EQ(output("grouped_matmul", of_grouped, grouped, "").values(), expected);
    EXPECT_EQ(output("einsum", of_einsum, summed, "equation=\"ik,kj->ij\"").values(), expected);
  }
}

// A diagonal's gradient leaves the rest of x an exact zero, whatever grad_y is.
TEST(Einsum, OffTheDiagonalTheGradientIsZero) {
  const std::vector<NamedTensor> inputs = {values("x_0", {2, 2}, {1, 2, 3, 4}),
                                           values("grad_y", {2}, {std::nan(""), 7})};
  EXPECT_THAT(output("einsum", "grad_x_0", inputs, "equation=\"ii->i\"").values(),
              ElementsAre(testing::IsNan(), 0, 0, 7));
}

class WrongContraction : public testing::TestWithParam<Wrong> {};

TEST_P(WrongContraction, IsAnErrorThatSaysSo) {
  expect_error(GetParam());
}

const NamedTensor x = zeros("x", {6, 5}), w = zeros("w", {2, 5, 3}),
                  sizes = indices("group_sizes", {2}, {2, 4});
const NamedTensor x_0 = zeros("x_0", {2, 3}), x_1 = zeros("x_1", {3, 4});

INSTANTIATE_TEST_SUITE_P(
    Calls, WrongContraction,
    testing::Values(
        Wrong{"grouped_matmul",
              {x, w, indices("group_sizes", {2}, {2, 3})},
              "",
              "'group_sizes' is [2, 3]; expected numbers of 0 or more that add up to T = 6"},
        Wrong{"grouped_matmul", {x, w, indices("group_sizes", {2}, {-1, 7})}, "", "'group_sizes' is [-1, 7]"},
        Wrong{"grouped_matmul", {x, w, indices("group_sizes", {1}, {6})}, "", "'group_sizes' has shape [1]"},
        Wrong{"grouped_matmul", {x, w, sizes}, "transpose_weight=true", "'w' has shape [2, 5, 3]"},
        Wrong{"grouped_matmul_reshape_cast",
              {x, w, sizes},
              "shape=[4,-1]",
              "grouped_matmul_reshape_cast: shape [4, -1] does not hold the 18 elements of [6, 3]"},
        Wrong{"grouped_matmul_reshape_cast",
              {x, zeros("w", {5, 3}), sizes},
              "shape=[-1]",
              "'w' has shape [5, 3]"},
        Wrong{"grouped_matmul_reshape_cast", {x, w, sizes}, "shape=[-1],to=\"int8\"", "to is int8"},
        Wrong{"grouped_matmul_reshape_cast", {x, w, sizes}, "", "attribute 'shape' is null"},
        Wrong{"einsum", {x_0, x_1}, "", "attribute 'equation' is null"},
        Wrong{"einsum", {x_0, x_1}, "equation=\"ij\"", "\"ij\" is of 1 operands; 2 are given"},
        Wrong{
            "einsum", {x_0, x_1}, "equation=\"ijk,jk\"", "x_0 has shape [2, 3]; \"ijk\" names 3 dimensions"},
        Wrong{"einsum",
              {x_0, x_1},
              "equation=\"ij,ik\"",
              "x_1 has shape [3, 4]; its dimension 0 is 2 elsewhere"},
        Wrong{"einsum", {x_0, x_1}, "equation=\"ii,jk\"", "the two dimensions i differ"},
        Wrong{"einsum", {x_0, x_1}, "equation=\"ij,jk->il\"", "y has the letter l"},
        Wrong{"einsum", {x_0, x_1}, "equation=\"ij,jk->ii\"", "each once"},
        Wrong{"einsum", {x_0, x_1}, "equation=\"i.j,jk\"", "'.' in the equation"},
        Wrong{"einsum", {x_0, x_1}, "equation=\"i......j,jk\"", "'.' in the equation"},
        Wrong{"einsum", {x_0, x_1}, "equation=\"ij,j1\"", "'1' in the equation"}),
    [](const auto& info) { return info.param.op + std::to_string(info.index); });

}  // namespace
}  // namespace assay::contractions_test
