// Rows that data chose, by a rule that nobody recorded: experts that choose their tokens.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "assay/compare/flow/chosen_rows.h"
#include "isolated.h"

namespace assay::chosen_rows_test {
namespace {

constexpr auto f = Phase::forward, b = Phase::backward;
constexpr std::int64_t tokens = 12, width = 16;

Tensor rows_of(const Tensor& x, const std::vector<std::int64_t>& rows) {
  Values y;
  for (const std::int64_t row : rows) {
    for (std::int64_t j = 0; j < width; ++j) y.push_back(x.value(row * width + j));
  }
  return Tensor::from_values(x.dtype(), {std::ssize(rows), width}, y);
}

Tensor put_back(const Tensor& g, const std::vector<std::int64_t>& rows) {
  Values x(tokens * width, 0);
  for (std::size_t r = 0; r < rows.size(); ++r) {
    for (std::size_t j = 0; j < width; ++j)
      x[static_cast<std::size_t>(rows[r]) * width + j] = g.value(static_cast<std::int64_t>(r * width + j));
  }
  return Tensor::from_values(g.dtype(), {tokens, width}, x);
}

struct Faults {
  bool swaps = false, takes_another = false, breaks_one = false, puts_back_otherwise = false,
       has_one_order = false;
};

// An expert, here an activation, is given rows of what a norm made; it hands their gradients back.
auto expert(const Faults& faults) {
  return [=](MemoryDump& d, bool is_actual) {
    for (const std::int64_t mb : {0, 1}) {
      const auto seed = static_cast<std::uint64_t>(10 * mb);
      const std::vector<std::int64_t> expected = mb == 0 || faults.has_one_order
                                                     ? std::vector<std::int64_t>{9, 2, 3, 11, 6, 0}
                                                     : std::vector<std::int64_t>{4, 1, 10, 9, 7, 5};
      std::vector<std::int64_t> rows = expected;
      if (is_actual && faults.swaps) std::swap(rows[2], rows[3]);
      if (is_actual && faults.takes_another) rows[5] = 8;
      const Tensor x = normal_tensor(DType::float32, {tokens, width}, 1 + seed),
                   g = rows_of(normal_tensor(DType::float32, {tokens, width}, 2 + seed), rows);
      // What is before a row that went elsewhere is the same, so that the choice alone is judged.
      const Tensor made = is_actual && rows == expected ? noisy(x, 7) : x, given = rows_of(made, rows);
      const auto put = [&](Phase phase, const char* slot, const char* arg, const Tensor& t) {
        d.add({0, mb, phase, "moe.expert", slot, arg, 0}, t).op = "silu";
      };
      d.add({0, mb, f, "norm", "output", "y", 0}, made);
      put(f, "input", "x", is_actual && faults.breaks_one ? with_one_wrong(given) : given);
      put(f, "output", "y", output("silu", {{"x", given}}, {}, "y"));
      put(b, "grad_output", "y", g);
      const Tensor of_x = output("silu", {{"x", given}, {"grad_y", g}}, {}, "grad_x");
      put(b, "grad_input", "x", of_x);
      d.add({0, mb, b, "norm", "grad_output", "y", 0},
            put_back(of_x, is_actual && faults.puts_back_otherwise ? expected : rows));
    }
  };
}

TEST(ChosenRows, TheSameChoicePasses) {
  const Report report = isolated(expert({}));
  EXPECT_EQ(report.exit_status(), 0);
  EXPECT_EQ(finding(report, "moe.expert", "input").unjudged, "");
  EXPECT_EQ(finding(report, "norm", "grad_output").unjudged, "");
}

TEST(ChosenRows, TheirOrderIsNoDifferenceWhereDataDecidesIt) {
  const Report report = isolated(expert({.swaps = true}));
  const Finding& input = finding(report, "moe.expert", "input");
  ASSERT_EQ(input.verdict, Verdict::exempt);
  EXPECT_EQ(input.exemption->kind, Exemption::Kind::legal_tie);
  EXPECT_TRUE(created(report).empty());
}

TEST(ChosenRows, OtherRowsAreUndecided) {
  for (const Faults& faults : {Faults{.takes_another = true}, {.swaps = true, .has_one_order = true}}) {
    const Report report = isolated(expert(faults));
    EXPECT_EQ(finding(report, "moe.expert", "input").verdict, Verdict::undecided);
    EXPECT_EQ(report.exit_status(), 1);
    EXPECT_TRUE(created(report).empty());
  }
}

TEST(ChosenRows, WhatIsNoneOfTheRowsFails) {
  EXPECT_EQ(created(isolated(expert({.breaks_one = true}))).front(), "moe.expert input x");
}

TEST(ChosenRows, GradientsGoBackToTheRowsThatWereChosen) {
  EXPECT_EQ(created(isolated(expert({.swaps = true, .puts_back_otherwise = true}))),
            std::vector<std::string>(2, "norm grad_output y"));
}

TEST(ChosenRows, WindowsAndSlicesFollowLoops) {
  using Rows = std::vector<std::int64_t>;
  for (const Rows& rows : {Rows{},
                           {3},
                           {5, 2},
                           {0, 1, 2},
                           {9, 6, 3},
                           {0, 1, 4, 5, 8, 9},
                           {0, 4, 1, 5, 2, 6},
                           {0, 1, 4, 5, 2, 3, 6, 7}})
    EXPECT_TRUE(follow_loops(rows));
  for (const Rows& rows : {Rows{0, 1, 3}, {9, 2, 3, 11, 6, 0}, {0, 1, 4, 5, 2, 3, 6, 8}})
    EXPECT_FALSE(follow_loops(rows));
}

}  // namespace
}  // namespace assay::chosen_rows_test
