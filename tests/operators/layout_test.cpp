#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "assay/operators/engine/copy.h"
#include "calls.h"

// What the operators that move elements promise beyond values: bits, counts, and errors for bad calls.
namespace assay::layout_test {
namespace {

using testing::ElementsAre;

std::uint64_t bits(double v) {
  return std::bit_cast<std::uint64_t>(v);
}

TEST(Copy, KeepsEveryBitForwardAndBackward) {
  const double nan = std::bit_cast<double>(0xfff8'0000'0000'0123u);
  const auto x = values("x", {2, 2}, {-0.0, nan, 1, -std::numeric_limits<double>::infinity()});
  const auto g = values("grad_y", {2, 2}, {-0.0, 2, nan, 4});
  for (const auto& [op, attributes] : {std::pair("transpose", "perm=[1,0]"), std::pair("slice", "starts=[0]"),
                                       std::pair("pad", "pad=[0,0]"), std::pair("expand", "shape=[2,2]")}) {
    const bool turned = std::string_view(op) == "transpose";
    const std::vector<double> y = output(op, "y", {x, g}, attributes).values();
    EXPECT_EQ(bits(y[0]), bits(-0.0)) << op;
    EXPECT_EQ(bits(y[turned ? 2 : 1]), bits(nan)) << op;
    const std::vector<double> grad_x = output(op, "grad_x", {x, g}, attributes).values();
    EXPECT_EQ(bits(grad_x[0]), bits(-0.0)) << op;
    EXPECT_TRUE(std::isnan(grad_x[turned ? 1 : 2])) << op;
  }
}

TEST(ScatterAdd, WhatIsNotHitKeepsItsBitsAndLargerSourcesAreReadAtTheirFront) {
  const std::vector<NamedTensor> inputs = {values("x", {3}, {-0.0, 1, 2}), indices("index", {2}, {1, 1}),
                                           values("src", {4}, {10, 100, 1000, 10000}),
                                           values("grad_y", {3}, {5, 6, 7})};
  const std::vector<double> y = output("scatter_add", "y", inputs, "").values();
  EXPECT_THAT(y, ElementsAre(0, 111, 2));
  EXPECT_TRUE(std::signbit(y[0]));
  EXPECT_THAT(output("scatter_add", "grad_src", inputs, "").values(), ElementsAre(6, 6, 0, 0));
}

TEST(Slice, CutsWhatLiesOutside) {
  const auto x = values("x", {4}, {0, 1, 2, 3});
  EXPECT_THAT(output("slice", "y", {x}, "starts=[-100],ends=[9223372036854775807]").values(),
              ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(output("slice", "y", {x}, "starts=[100],ends=[-9223372036854775808],steps=[-3]").values(),
              ElementsAre(3, 0));
  EXPECT_THAT(output("slice", "y", {x}, "starts=[-1],ends=[0],steps=[-1]").values(), ElementsAre(3, 2, 1));
  EXPECT_THAT(output("slice", "y", {x}, "starts=[1],ends=[1]").values(), ElementsAre());
}

TEST(Pad, MayBeInfinite) {
  EXPECT_THAT(output("pad", "y", {values("x", {1}, {2})}, "pad=[1,0],value=\"-inf\"").values(),
              ElementsAre(-infinity, 2));
}

// The declared count is the most that one element of x really has: its gradient for ones.
TEST(Pad, CountsTheCopies) {
  const Operator& pad = find_operator("pad");
  for (const char* mode : {"constant", "reflect", "replicate", "circular"}) {
    for (std::int64_t extent = 1; extent <= 5; ++extent) {
      for (std::int64_t before = 0; before <= 4; ++before) {
        for (std::int64_t behind = 0; behind <= 4; ++behind) {
          const auto attributes =
              parse_call({"", fmt::format("pad=[{},{}],mode=\"{}\"", before, behind, mode)}).attributes;
          const std::vector<InputShape> shapes = {{"x", {extent}}};
          std::int64_t count = 0;
          try {
            count = accumulation_count(pad, "grad_x", shapes, attributes);
          } catch (const Error&) {
            continue;  // more than there is to reflect
          }
          const std::vector<double> ones(static_cast<std::size_t>(extent + before + behind), 1);
          const auto g = values("grad_y", {extent + before + behind}, ones);
          const auto golden =
              compute_golden(pad, std::vector{zeros("x", {extent}), g}, attributes, Level::fp64);
          EXPECT_EQ(std::ranges::max(golden.back().tensor.values()), static_cast<double>(count))
              << mode << " " << extent << " by " << before << " and " << behind;
        }
      }
    }
  }
}

TEST(Gather, CountsEveryIndexWhereOnlyShapesAreKnown) {
  const std::vector<InputShape> shapes = {{"x", {4, 3}}, {"index", {9, 2}}};
  EXPECT_EQ(accumulation_count(find_operator("gather"), "grad_x", shapes, {}), 9);
  EXPECT_EQ(accumulation_count(find_operator("index_select"), "grad_x",
                               std::vector<InputShape>{{"x", {4, 3}}, {"index", {7}}}, {}),
            7);
}

class WrongLayout : public testing::TestWithParam<Wrong> {};

TEST_P(WrongLayout, IsAnErrorThatSaysSo) {
  expect_error(GetParam());
}

const NamedTensor x46 = zeros("x", {4, 6}), scalar = zeros("x", {});

INSTANTIATE_TEST_SUITE_P(
    Calls, WrongLayout,
    testing::Values(
        Wrong{"transpose", {x46}, "perm=[0]", "perm names 1 dimensions; expected all 2"},
        Wrong{"transpose", {x46}, "perm=[0,0]", "dim 0 is named twice"},
        Wrong{"transpose", {x46}, "dim0=1", "one of dim0 and dim1 is missing"},
        Wrong{"transpose", {x46}, "perm=[0,1],dim0=0,dim1=1", "expected one of them"},
        Wrong{"reshape", {x46}, "shape=[5,-1]", "shape [5, -1] does not hold the 24 elements of [4, 6]"},
        Wrong{"reshape", {x46}, "shape=[-1,-1]", "one -1 at most"},
        Wrong{"reshape", {x46}, "shape=[-24,-1]", "does not hold"},
        Wrong{"reshape", {zeros("x", {0, 3})}, "shape=[0,-1]", "does not hold"},
        Wrong{"reshape", {x46}, "", "attribute 'shape' is null"},
        Wrong{"concat", {zeros("x_0", {2, 3}), zeros("x_1", {2, 4})}, "", "x_1 has shape [2, 4], x_0 [2, 3]"},
        Wrong{"concat", {zeros("x_0", {})}, "", "x_0 is a scalar"},
        Wrong{"concat", {zeros("x_0", {2}), zeros("x_2", {2})}, "", "expected the numbers 0 to 1"},
        Wrong{"split", {x46}, "", "expected one of split_size and sections"},
        Wrong{"split", {x46}, "split_size=0", "split_size is 0; expected 1 or more"},
        Wrong{"split", {x46}, "sections=[1,2]", "sections are [1, 2]; expected extents whose sum is 4"},
        Wrong{"split", {x46}, "sections=[9,-5]", "expected extents whose sum is 4"},
        Wrong{"split", {x46, zeros("grad_y_0", {2, 6})}, "split_size=2", "1 gradients are given"},
        Wrong{"split",
              {x46, zeros("grad_y_0", {2, 6}), zeros("grad_y_1", {3, 6})},
              "split_size=2",
              "grad_y_1 has shape [3, 6]; expected [2, 6]"},
        Wrong{"slice", {x46}, "starts=[0],steps=[0]", "the step of dim 0 is 0"},
        Wrong{"slice", {x46}, "starts=[0,1],ends=[1]", "ends has 1 entries, starts 2"},
        Wrong{"slice", {x46}, "starts=[0,1],dims=[1,-1]", "dim -1 is named twice"},
        Wrong{"slice", {x46}, "starts=[0.5]", "starts holds 0.5; expected integers"},
        Wrong{"slice", {scalar}, "starts=[0]", "a scalar has nothing to cut"},
        Wrong{"pad", {x46}, "pad=[1]", "pad has 1 numbers for 2 dimensions"},
        Wrong{"pad",
              {x46},
              "pad=[6,0],mode=\"reflect\"",
              "6 elements cannot be padded by 6 and 0 in mode reflect"},
        Wrong{"pad", {x46}, "pad=[-4,-3]", "cannot be padded by -4 and -3"},
        Wrong{"pad", {x46}, "pad=[1,1],mode=\"wrap\"", "mode is \"wrap\""},
        Wrong{"tile", {x46}, "repeats=[-1]", "expected no negative number"},
        Wrong{"tile", {zeros("x", {4096, 0})}, "repeats=[9e15,1]", "is too large"},
        Wrong{"tile", {x46}, "repeats=[1e9]", "expected at most 1073741824"},
        Wrong{"expand", {x46}, "shape=[4,7]", "[4, 6] cannot become [4, 7]"},
        Wrong{"expand", {x46}, "shape=[6]", "cannot become [6]"},
        Wrong{"expand", {x46}, "shape=[-1,4,6]", "cannot become [-1, 4, 6]"},
        Wrong{"gather", {x46, indices("index", {4}, {0, 0, 0, 0})}, "", "index has shape [4], x [4, 6]"},
        Wrong{"gather", {x46, indices("index", {1, 7}, {0, 0, 0, 0, 0, 0, 0})}, "", "no larger extents"},
        Wrong{"gather", {x46, indices("index", {1, 1}, {4})}, "", "'index' has the index 4 at position 0"},
        Wrong{"gather",
              {x46, indices("index", {1, 1}, {std::int64_t{1} << 62})},
              "",
              "expected 0 <= index < C = 4"},
        Wrong{"scatter_add",
              {x46, indices("index", {2, 1}, {0, 0}), zeros("src", {1, 6})},
              "",
              "index has shape [2, 1], src [1, 6]"},
        Wrong{
            "index_select", {scalar, indices("index", {2}, {0, 0})}, "", "index has 2 entries; expected one"},
        Wrong{"index_select", {x46, indices("index", {1}, {-1})}, "", "'index' has the index -1"}),
    [](const auto& info) { return info.param.op + std::to_string(info.index); });

}  // namespace
}  // namespace assay::layout_test
