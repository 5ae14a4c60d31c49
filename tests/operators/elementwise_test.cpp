#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "calls.h"

// What the suite's smooth random inputs do not reach: ties, poles, steps, NaN.
namespace assay::elementwise_test {
namespace {

using testing::ElementsAre;
constexpr double nan = std::numeric_limits<double>::quiet_NaN();

std::vector<double> bound(std::string_view op, std::string_view name, const std::vector<NamedTensor>& inputs,
                          std::string_view attributes = {}) {
  return tensor_of(compute_bound(find_operator(op), inputs, attributes_of(attributes), {0x1p-24, 0x1p-149}),
                   name)
      .values();
}

// 1 / (1 + exp(-x)) in float32 is 0 from where exp(-x) is infinite: 2^128 = exp(88.72).
TEST(Sigmoid, MayBeZeroWhereItsPowerOverflows) {
  const std::vector<double> at = {-88.7, -88.73, -200};
  for (const auto& [op, size] : {std::pair{"sigmoid", 1.0}, {"silu", 200.0}}) {
    const NamedTensor x = values("x", {3}, at), g = values("grad_y", {3}, {1, 1, 1});
    for (const char* name : {"y", "grad_x"}) {
      const std::vector<double> allowed = bound(op, name, {x, g}), golden = output(op, name, {x, g}).values();
      EXPECT_LT(allowed[0], std::abs(golden[0]) / 1000) << op << ' ' << name;
      for (const std::size_t i : {1, 2}) {
        EXPECT_GE(allowed[i], std::abs(golden[i])) << op << ' ' << name << ' ' << at[i];
        EXPECT_LE(allowed[i], 2 * size * std::exp(at[i]) + size * 0x1p-146)
            << op << ' ' << name << ' ' << at[i];
      }
    }
  }
  const auto wide =
      compute_bound(find_operator("sigmoid"), std::vector{values("x", {3}, at)}, {}, {0x1p-53, 0x1p-1074});
  EXPECT_LT(tensor_of(wide, "y").values()[2], std::exp(-200) / 1e9);
}

TEST(Broadcast, ScalarsAndEmptyTensors) {
  EXPECT_THAT(output("add", "y", {values("a", {}, {1}), values("b", {}, {2})}).values(), ElementsAre(3));
  // A factor whose every copy is gone has the gradient 0.
  const auto a = values("a", {0, 2}, {}), b = values("b", {1, 2}, {3, 4}), g = values("grad_y", {0, 2}, {});
  EXPECT_THAT(output("mul", "y", {a, b}).values(), ElementsAre());
  EXPECT_THAT(output("mul", "grad_b", {a, b, g}).values(), ElementsAre(0, 0));
  expect_error({"mul", {values("a", {1, 2}), values("b", {1, 2, 3})}, "", "cannot be broadcast"});
}

TEST(Add, WithoutAlphaIsOneRounding) {
  const auto a = values("a", {1}), b = values("b", {1});
  EXPECT_THAT(bound("add", "y", {a, b}), ElementsAre(0x1p-23));
  EXPECT_THAT(bound("add", "grad_b", {a, b, values("grad_y", {3})}), ElementsAre(0));
}

// 0.1 in float64 is above 1/10: nine of it go into 1, though the quotient rounds to 10.
TEST(Div, RoundsToIntegersByTheExactQuotient) {
  const auto a = values("a", {1, -1, 6, -7}), b = values("b", {.1, .1, 3, 2});
  EXPECT_THAT(output("div", "y", {a, b}, "rounding_mode=\"floor\"").values(), ElementsAre(9, -10, 2, -4));
  EXPECT_THAT(output("div", "y", {a, b}, "rounding_mode=\"trunc\"").values(), ElementsAre(9, -9, 2, -3));
  // A device may be one off beside a step, not at an exact quotient: 6 / 3 is 2.
  EXPECT_THAT(bound("div", "y", {a, b}, "rounding_mode=\"floor\""), ElementsAre(1, 1, 0, 0));
  expect_error({"div", {a, b}, "rounding_mode=\"round\"", "expected null, floor or trunc"});
}

TEST(Pow, OfNegativeNumbers) {
  const auto a = values("a", {-2, -2, -2, 0, 0}), b = values("b", {3, -2, .5, -1, 0});
  const auto g = values("grad_y", {1, 1, 1, 1, 1});
  EXPECT_THAT(output("pow", "y", {a, b}).values(), ElementsAre(-8, .25, testing::IsNan(), infinity, 1));
  const auto grad = output("pow", "grad_a", {a, b, g}).values();
  EXPECT_THAT(grad, ElementsAre(12, .25, testing::IsNan(), -infinity, 0));
  const auto errors = bound("pow", "grad_a", {a, b, g});
  EXPECT_LE(errors[0], 12 * 0x1p-18);
  EXPECT_LE(errors[1], .25 * 0x1p-18);
  EXPECT_THAT(output("pow", "grad_b", {a, b, g}).values(),
              ElementsAre(testing::IsNan(), testing::IsNan(), testing::IsNan(), -infinity, 0));
}

TEST(Maximum, TiesAreHalvedAndNaNWins) {
  const auto a = values("a", {1, nan, 2, infinity}), b = values("b", {1, 5, nan, infinity});
  const auto g = values("grad_y", {1, 1, 1, 1});
  for (const char* op : {"maximum", "minimum"}) {
    EXPECT_THAT(output(op, "y", {a, b}).values(),
                ElementsAre(1, testing::IsNan(), testing::IsNan(), infinity))
        << op;
    EXPECT_THAT(output(op, "grad_a", {a, b, g}).values(), ElementsAre(.5, 1, 1, .5)) << op;
    EXPECT_THAT(output(op, "grad_b", {a, b, g}).values(), ElementsAre(.5, 1, 1, .5)) << op;
  }
}

TEST(Where, WhatIsNotChosenDoesNotShow) {
  const NamedTensor condition = {"condition", Tensor::from_indices({3}, std::vector<std::int64_t>{1, 0, 7})};
  const auto a = values("a", {1, nan, 3}), b = values("b", {nan, 5, infinity}),
             g = values("grad_y", {1, 1, 1});
  EXPECT_THAT(output("where", "y", {condition, a, b}).values(), ElementsAre(1, 5, 3));
  EXPECT_THAT(output("where", "grad_a", {condition, a, b, g}).values(), ElementsAre(1, 0, 1));
  EXPECT_THAT(output("where", "grad_b", {condition, a, b, g}).values(), ElementsAre(0, 1, 0));
}

// Gradients beside NaN and zero as torch has them.
TEST(Unary, GradientsAtZeroAndNaN) {
  const auto x = values("x", {-1, -0., 0, 1, nan}), g = values("grad_y", {2, 2, 2, 2, 2});
  EXPECT_THAT(output("relu", "y", {x}).values(), ElementsAre(0, 0, 0, 1, testing::IsNan()));
  EXPECT_THAT(output("relu", "grad_x", {x, g}).values(), ElementsAre(0, 0, 0, 2, 2));
  EXPECT_THAT(output("abs", "grad_x", {x, g}).values(), ElementsAre(-2, 0, 0, 2, 0));
  EXPECT_THAT(output("sqrt", "y", {x}).values(), ElementsAre(testing::IsNan(), 0, 0, 1, testing::IsNan()));
  EXPECT_THAT(output("sqrt", "grad_x", {x, g}).value(2), infinity);
  EXPECT_THAT(output("log", "y", {x}).value(2), -infinity);
}

TEST(Clip, NaNStaysAndMaxWinsOverMin) {
  const auto x = values("x", {nan, 0, 5}), g = values("grad_y", {1, 1, 1});
  EXPECT_THAT(output("clip", "y", {x}, "min=2,max=1").values(), ElementsAre(testing::IsNan(), 1, 1));
  EXPECT_THAT(output("clip", "grad_x", {x, g}, "min=-1,max=1").values(), ElementsAre(0, 1, 0));
  EXPECT_THAT(output("clip", "y", {x, values("min", {0, nan, 0})}).values(),
              ElementsAre(testing::IsNan(), testing::IsNan(), 5));
  // ONNX Clip without limits.
  EXPECT_THAT(output("clip", "y", {x}).values(), ElementsAre(testing::IsNan(), 0, 5));
  expect_error({"clip", {x, values("min", {1})}, "min=1", "both an attribute and an input"});
}

// Whoever adds r and x first rounds 6 and then y, whoever begins with x and the gated z only 3.
TEST(GatedAdd, ThreeTermsMayBeAddedInAnyOrder) {
  const std::vector<NamedTensor> inputs = {values("x", {1, 1}, {3}), values("gate", {1, 1}, {40}),
                                           values("z", {1, 1}, {0.01}), values("r", {1, 1}, {3})};
  const auto made = compute_bound(find_operator("gated_add"), inputs, {}, {0x1p-24, 0x1p-149});
  EXPECT_GE(output_named(made, "y").value(0), 0x1p-24 * (6 + 6));
}

}  // namespace
}  // namespace assay::elementwise_test
