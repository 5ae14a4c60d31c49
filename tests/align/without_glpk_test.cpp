// What a wheel has in place of GLPK, against all choices there are.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "assay/align/planning/integer_program.h"
#include "assay/golden/error.h"

namespace assay::align::without_glpk_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;

constexpr double infinity = std::numeric_limits<double>::infinity();

TEST(WithoutGlpk, ACoverHasEveryRowAndCostsNoMoreThanItSays) {
  std::mt19937 random(1);
  const auto draw = [&](int least, int most) {
    return std::uniform_int_distribution<int>(least, most)(random);
  };
  int covered = 0, cheapest_found = 0;
  for (int round = 0; round < 300; ++round) {
    const int sets = draw(1, 9), rows = draw(1, 9);
    IntegerProgram program;
    std::vector<double> cost;
    for (int s = 0; s < sets; ++s) program.add_integer(0, 1, cost.emplace_back(draw(1, 9)));
    std::vector<unsigned> has;  // by row, the sets
    for (int r = 0; r < rows; ++r) {
      IntegerProgram::Terms terms;
      has.push_back(0);
      for (int s = 0; s < sets; ++s) {
        if (draw(0, 2) > 0) continue;
        has.back() |= 1U << s;
        terms.emplace_back(s, 1);
      }
      program.add_row(1, terms, sets);
    }
    double least = infinity;
    for (unsigned chosen = 0; chosen < 1U << sets; ++chosen) {
      double all = 0;
      for (int s = 0; s < sets; ++s) all += chosen >> s & 1 ? cost[static_cast<std::size_t>(s)] : 0;
      if (std::ranges::all_of(has, [&](unsigned row) { return (row & chosen) != 0; }))
        least = std::min(least, all);
    }
    const auto solution = program.solve(0, 1000);
    ASSERT_EQ(solution.has_value(), std::isfinite(least)) << round;
    if (!solution) continue;
    unsigned chosen = 0;
    double all = 0;
    for (std::size_t s = 0; s < cost.size(); ++s) {
      chosen |= solution->values[s] > 0 ? 1U << s : 0;
      all += solution->values[s] * cost[s];
    }
    for (const unsigned row : has) EXPECT_NE(row & chosen, 0U) << round;
    EXPECT_EQ(solution->cost, all) << round;
    EXPECT_GE(least, all * (1 - solution->gap) * (1 - 1e-12)) << round;
    ++covered;
    cheapest_found += all == least;
  }
  EXPECT_GT(covered, 100);
  EXPECT_GT(cheapest_found, covered * 9 / 10);
}

TEST(WithoutGlpk, WhatALaterSetHasIsDropped) {
  IntegerProgram program;  // the first is the cheapest for each of its rows, then the others have them all
  for (const double cost : {2.4, 2.5, 2.5}) program.add_integer(0, 1, cost);
  program.add_row(1, {{0, 1}, {1, 1}}, 3);
  program.add_row(1, {{0, 1}, {1, 1}}, 3);
  program.add_row(1, {{0, 1}, {2, 1}}, 3);
  program.add_row(1, {{0, 1}, {2, 1}}, 3);
  program.add_row(1, {{1, 1}}, 3);
  program.add_row(1, {{2, 1}}, 3);
  const auto solution = program.solve(0, 1000);
  ASSERT_TRUE(solution);
  EXPECT_THAT(solution->values, ElementsAre(0, 1, 1));
}

TEST(WithoutGlpk, OtherProgramsAreRefusedWithAWayOut) {
  IntegerProgram program;
  const int x = program.add_integer(0, 3, 1);
  program.add_row(2, {{x, 1}}, infinity);
  EXPECT_THAT([&] { (void)program.solve(0, 1000); },
              ThrowsMessage<Error>(AllOf(HasSubstr("built without GLPK"), HasSubstr("libglpk-dev"))));
}

}  // namespace
}  // namespace assay::align::without_glpk_test
