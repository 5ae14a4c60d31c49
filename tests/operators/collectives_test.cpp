#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "calls.h"

// Collectives: orders of additions, told apart by sums whose rounding depends on them, and calls that cannot
// be right.
namespace assay::collectives_test {
namespace {

using testing::ElementsAre;

std::vector<double> y(std::string_view op, const NamedTensor& x, std::string_view attributes,
                      Level level = Level::fp64) {
  return golden(op, {x}, attributes, level).at(0).tensor.values();
}
double bound(const NamedTensor& x, std::string_view attributes) {
  return compute_bound(find_operator("all_reduce"), std::vector<NamedTensor>{x}, attributes_of(attributes),
                       {0x1p-24, 0})
      .at(0)
      .tensor.value(0);
}

// 1 + h is 1: only who meets another h first keeps it.
TEST(AllReduce, EveryOrderIsComputedAsItIsStated) {
  constexpr double h = 0x1p-53;
  const auto x = values("x", {4, 1}, {1, h, h, h});
  EXPECT_THAT(y("all_reduce", x, "order=\"rank\""), ElementsAre(1));
  EXPECT_THAT(y("all_reduce", x, "order=\"tree\""), ElementsAre(1 + 2 * h));
  EXPECT_THAT(y("all_reduce", x, "order=\"ring\""), ElementsAre(1 + 4 * h));  // h h h 1; ties to even
  EXPECT_THAT(y("all_reduce", x, "order=\"exact\""), ElementsAre(1 + 4 * h));
  // At level report in float32.
  const auto narrow = values("x", {4, 1}, {1, 0x1p-24, 0x1p-24, 0x1p-24});
  EXPECT_THAT(y("all_reduce", narrow, "order=\"tree\"", Level::report), ElementsAre(1 + 0x1p-23));
  EXPECT_THAT(y("all_reduce", narrow, "order=\"rank\"", Level::report), ElementsAre(1));
}

// Chunk r of a ring starts at rank r + 1 and ends at rank r.
TEST(AllReduce, EachChunkOfARingStartsAtAnotherRank) {
  constexpr double h = 0x1p-53;
  // Two elements a chunk, the last chunk has one.
  const auto x = values("x", {3, 5}, {1, 1, 1, 1, 1, h, h, h, h, h, h, h, h, h, h});
  EXPECT_THAT(y("all_reduce", x, "order=\"ring\""), ElementsAre(1 + 2 * h, 1 + 2 * h, 1, 1, 1));
  const auto chunks = values("x", {3, 3}, {1, 1, 1, h, h, h, h, h, h});
  EXPECT_THAT(y("reduce_scatter", chunks, "order=\"ring\""), ElementsAre(1 + 2 * h, 1, 1));
}

// Eight ranks: seven additions in some order, three in a tree, one rounding if exact.
TEST(AllReduce, TheBoundIsThatOfTheOrder) {
  const auto x = values("x", {8, 1}, std::vector<double>(8, 1));
  constexpr double u = 0x1p-24;
  EXPECT_DOUBLE_EQ(bound(x, ""), 7 * 8 * u);
  EXPECT_DOUBLE_EQ(bound(x, "order=\"exact\""), 8 * u);
  EXPECT_NEAR(bound(x, "order=\"tree\""), 3 * 8 * u, 1e-5 * u);
  EXPECT_NEAR(bound(x, "order=\"rank\""), (2 + 3 + 4 + 5 + 6 + 7 + 8) * u, 1e-4 * u);
  EXPECT_EQ(bound(x, "reduce=\"max\""), 0);
}

TEST(AllReduce, TheExactSumForgetsNothing) {
  const auto x = values("x", {4, 1}, {1e300, 1, -1e300, 1e-300});
  EXPECT_THAT(y("all_reduce", x, "order=\"exact\""), ElementsAre(1));
  EXPECT_THAT(y("all_reduce", x, "order=\"exact\",reduce=\"avg\""), ElementsAre(0.25));
}

class WrongCollective : public testing::TestWithParam<Wrong> {};

TEST_P(WrongCollective, IsAnErrorThatSaysSo) {
  expect_error(GetParam());
}

const NamedTensor x34 = zeros("x", {3, 4}), x36 = zeros("x", {2, 6});
INSTANTIATE_TEST_SUITE_P(
    Calls, WrongCollective,
    testing::Values(
        Wrong{"all_reduce", {zeros("x", {})}, "", "'x' has shape []; expected [R,S*]"},
        Wrong{"all_reduce", {zeros("x", {0, 4})}, "", "x has shape [0, 4]; expected [R, ..]"},
        Wrong{"all_reduce",
              {x34},
              "reduce=\"mean\"",
              "reduce is \"mean\"; expected one of sum, avg, prod, max, min"},
        Wrong{"all_reduce", {x34}, "order=\"butterfly\"", "order is \"butterfly\"; expected one of rank"},
        Wrong{"all_reduce", {x34}, "order=\"exact\",reduce=\"prod\"", "the order exact is one of sums"},
        Wrong{"reduce_scatter", {x34}, "", "4 elements along dim 0 cannot be cut into 3 equal chunks"},
        Wrong{"reduce_scatter", {zeros("x", {3})}, "", "'x' has shape [3]; expected [R,A*,C,B*]"},
        Wrong{"reduce_scatter", {x34}, "dim=1", "dim 1 is outside"},
        Wrong{"all_gather", {zeros("x", {3})}, "", "'x' has shape [3]; expected [R,A*,C,B*]"},
        Wrong{"all_to_all",
              {x34},
              "",
              "4 elements along dim 0 cannot be cut into 3 equal chunks; give split_sizes"},
        Wrong{"all_to_all", {x36}, "split_sizes=[1,5,6]", "split_sizes has 3 numbers; expected 2 x 2"},
        Wrong{"all_to_all", {x36}, "split_sizes=[1,5,2,3]", "rank 1 sends 5 elements; it holds 6"},
        Wrong{"all_to_all", {x36}, "split_sizes=[-1,7,3,3]", "rank 0 sends -1 of 6 elements to rank 0"},
        Wrong{"all_to_all",
              {zeros("x", {2, 6, 4})},
              "split_sizes=[1,5,3,3],concat_dim=1",
              "concat_dim equal to split_dim"}));

}  // namespace
}  // namespace assay::collectives_test
