#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "calls.h"

// Reductions, scans, choices and pooling: what the suite's random inputs do not show, and calls that cannot
// be right.
namespace assay::reductions_test {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
const double nan = std::nan("");

std::vector<std::int64_t> index(std::string_view op, const NamedTensor& x, std::string_view attributes = {}) {
  return output(op, "index", {x}, attributes).indices();
}

TEST(Order, NaNIsTheLargestAndComesFirstOrLast) {
  const auto x = values("x", {5}, {1, nan, -infinity, nan, 3});
  EXPECT_THAT(index("sort", x), ElementsAre(2, 0, 4, 1, 3));
  EXPECT_THAT(index("sort", x, "descending=true"), ElementsAre(1, 3, 4, 0, 2));
  EXPECT_THAT(index("top_k", x, "k=3"), ElementsAre(1, 3, 4));
  EXPECT_THAT(index("top_k", x, "k=2,largest=false"), ElementsAre(2, 0));
}

TEST(Order, NaNWinsMaxAndMinAndTheFirstOfThem) {
  const auto x = values("x", {5}, {1, nan, -infinity, nan, 3});
  for (const char* op : {"reduce_max", "reduce_min", "argmax", "argmin"})
    EXPECT_THAT(index(op, x), ElementsAre(1));
  EXPECT_TRUE(std::isnan(output("reduce_max", "y", {x}).value(0)));
  EXPECT_TRUE(std::isnan(output("reduce_min", "y", {x}).value(0)));
  EXPECT_THAT(index("argmax", x, "select_last_index=true"), ElementsAre(3));
  const auto g = values("grad_y", {}, {4});
  EXPECT_THAT(output("reduce_max", "grad_x", {x, g}, "ties=\"even\"").values(), ElementsAre(0, 2, 0, 2, 0));
}

TEST(Order, TheLowerIndexOfEqualsComesFirst) {
  const auto x = values("x", {6}, {2, 0., -0., 2, 0, 2});
  EXPECT_THAT(index("sort", x), ElementsAre(1, 2, 4, 0, 3, 5));
  EXPECT_THAT(index("sort", x, "descending=true"), ElementsAre(0, 3, 5, 1, 2, 4));
  EXPECT_THAT(index("top_k", x, "k=2"), ElementsAre(0, 3));
  const auto g = values("grad_y", {2}, {5, 7});
  EXPECT_THAT(output("top_k", "grad_x", {x, g}, "k=2").values(), ElementsAre(5, 0, 0, 7, 0, 0));
}

TEST(Order, ScalarsHaveOneElement) {
  const auto x = values("x", {}, {3}), g = values("grad_y", {}, {2});
  for (const char* op : {"sort", "reduce_max", "cumsum", "cumprod"}) {
    EXPECT_EQ(output(op, "y", {x}).shape(), Shape()) << op;
    EXPECT_THAT(output(op, "grad_x", {x, g}, "dim=-1").values(), ElementsAre(2)) << op;
  }
  EXPECT_THAT(output("top_k", "y", {x}, "k=1").values(), ElementsAre(3));
  EXPECT_THAT(index("argmax", x, "dim=0"), ElementsAre(0));
}

// amax has no index, and max_pool only where it is asked for.
TEST(Order, AnIndexIsAnOutputOnlyWhereItMeansSomething) {
  const auto x = values("x", {1, 1, 4}, {1, 2, 2, 1});
  const auto names = [&](std::string_view op, std::string_view attributes) {
    std::vector<std::string> found;
    for (const NamedTensor& t : golden(op, {x}, attributes)) found.push_back(t.name);
    return found;
  };
  EXPECT_THAT(names("reduce_max", "dim=2"), ElementsAre("y", "index"));
  EXPECT_THAT(names("reduce_max", "ties=\"even\""), ElementsAre("y"));
  EXPECT_THAT(names("max_pool", "kernel_size=2"), ElementsAre("y"));
  EXPECT_THAT(names("max_pool", "kernel_size=2,return_indices=true"), ElementsAre("y", "index"));
}

TEST(Reduction, NothingHasTheSumZeroAndNoMean) {
  const auto x = values("x", {2, 0}, {});
  EXPECT_THAT(output("reduce_l1", "y", {x}, "dims=1").values(), ElementsAre(0, 0));
  EXPECT_THAT(output("reduce_l2", "y", {x}, "dims=1").values(), ElementsAre(0, 0));
  EXPECT_TRUE(std::isnan(output("reduce_mean", "y", {x}, "dims=1").value(0)));
  EXPECT_THAT(output("reduce_max", "y", {x}, "dim=0").values(), IsEmpty());
}

TEST(Reduction, NormsHaveTheGradientZeroAtZeroAndKeepNaN) {
  const auto x = values("x", {2, 2}, {0, -0., 3, -4}), g = values("grad_y", {2}, {1, 10});
  EXPECT_THAT(output("reduce_l1", "grad_x", {x, g}, "dims=1").values(), ElementsAre(0, 0, 10, -10));
  EXPECT_THAT(output("reduce_l2", "grad_x", {x, g}, "dims=1").values(), ElementsAre(0, 0, 6, -8));
  const auto bad = values("x", {2, 2}, {0, nan, 0, 0});
  EXPECT_TRUE(std::isnan(output("reduce_l1", "grad_x", {bad, g}, "dims=1").value(1)));
  EXPECT_TRUE(std::isnan(output("reduce_l2", "grad_x", {bad, g}, "dims=1").value(0)));
}

// The bound grows along the sum: an early element has had few additions.
TEST(CumSum, HasABoundPerPosition) {
  const auto x = values("x", {4}, {1, 1, 1, 1});
  const auto bound = compute_bound(find_operator("cumsum"), std::vector<NamedTensor>{x}, {}, {0x1p-24, 0});
  EXPECT_THAT(bound.at(0).tensor.values(), ElementsAre(0, 0x1p-24 * 2, 0x1p-24 * 6, 0x1p-24 * 12));
}

TEST(Pool, ALastWindowStartsInsideOfTheInput) {
  const auto x = values("x", {1, 1, 4}, {1, 2, 3, 4});
  EXPECT_EQ(output("max_pool", "y", {x}, "kernel_size=1,stride=4,ceil_mode=true").shape(), (Shape{1, 1, 1}));
  // The sum 4 + 0 of the last window is divided by 2: padding counts, what lies beyond it does not.
  EXPECT_THAT(output("avg_pool", "y", {x}, "kernel_size=3,stride=2,padding=1,ceil_mode=true").values(),
              ElementsAre(1, 3, 2));
}

class WrongReduction : public testing::TestWithParam<Wrong> {};

TEST_P(WrongReduction, IsAnErrorThatSaysSo) {
  expect_error(GetParam());
}

const NamedTensor x46 = zeros("x", {4, 6}), image = zeros("x", {1, 2, 6, 7});
INSTANTIATE_TEST_SUITE_P(
    Calls, WrongReduction,
    testing::Values(
        Wrong{"reduce_max",
              {zeros("x", {4, 0})},
              "dim=1",
              "x has shape [4, 0]; there is nothing to choose from"},
        Wrong{"reduce_max", {x46}, "dim=[0,1]", "'dim' is a list of numbers; expected a number"},
        Wrong{"reduce_min", {x46}, "ties=\"first\"", "ties is \"first\"; expected index or even"},
        Wrong{"argmax", {zeros("x", {})}, "dim=1", "dim 1 is outside of a tensor with 0 dimensions"},
        Wrong{"reduce_prod", {x46}, "dim=[0]", "expected a number"},
        Wrong{"top_k", {x46}, "", "'k' is missing"},
        Wrong{"top_k", {x46}, "k=7", "k is 7; the dimension has 6 elements"},
        Wrong{"top_k", {x46}, "k=-1", "k is -1"}, Wrong{"sort", {x46}, "dim=2", "dim 2 is outside"},
        Wrong{"avg_pool", {image}, "", "'kernel_size' is missing"},
        Wrong{"avg_pool", {x46}, "kernel_size=2", "x has shape [4, 6] and kernel_size one number"},
        Wrong{"avg_pool", {image}, "kernel_size=0", "kernel_size is 0; expected 1 to"},
        Wrong{"avg_pool", {image}, "kernel_size=2,stride=[1,2,3]", "stride has 3 numbers; expected 1 or 2"},
        Wrong{"avg_pool", {image}, "kernel_size=3,padding=2", "expected at most half of the window, 1"},
        Wrong{"avg_pool", {image}, "kernel_size=8", "no window fits into x of shape [1, 2, 6, 7]"},
        Wrong{"avg_pool", {image}, "kernel_size=2,divisor_override=0", "divisor_override is 0"},
        Wrong{"max_pool",
              {zeros("x", {1, 1, 1})},
              "kernel_size=2,dilation=2,padding=1",
              "window 0 holds nothing but padding"}));

}  // namespace
}  // namespace assay::reductions_test
