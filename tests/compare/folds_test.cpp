#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "assay/compare/report/folds.h"

namespace assay::folds_test {
namespace {

using testing::ElementsAre;
using testing::SizeIs;

Finding finding(const std::string& module, Verdict verdict = Verdict::failed, const std::string& slot = "") {
  Finding f;
  f.id.module = module;
  f.id.slot = slot;
  f.name = to_string(f.id);
  f.verdict = verdict;
  return f;
}
Report report(std::vector<Finding> findings) {
  Report r;
  r.findings = std::move(findings);
  return r;
}
std::vector<std::string> names(const std::vector<Fold>& list) {
  std::vector<std::string> texts;
  for (const Fold& f : list) texts.push_back(f.name);
  return texts;
}

TEST(Folds, NumbersBecomeRanges) {
  Report r;
  for (const int layer : {3, 4, 5, 9}) {
    for (const int expert : {0, 2, 4, 6}) {
      r.findings.push_back(
          finding("layers." + std::to_string(layer) + ".experts." + std::to_string(expert) + ".fc1"));
      r.findings.back().ratio = layer;
    }
  }
  const std::vector<Fold> list = folds(r, 10);
  EXPECT_THAT(names(list), ElementsAre("layers.3-5,9.experts.*.fc1"));
  EXPECT_EQ(list[0].count, 16);
  EXPECT_EQ(list[0].ratio, 9);
}

TEST(Folds, WhatIsNoCountStaysAsItIs) {
  const Report r = report({finding("w007"), finding("w008"), finding("h12345678901234567890")});
  EXPECT_THAT(names(folds(r, 10)), ElementsAre("w007", "w008", "h12345678901234567890"));
}

TEST(Folds, TheWorstVerdictsComeFirstAndThenExecutionOrder) {
  const Report r =
      report({finding("gone", Verdict::missing_actual), finding("small", Verdict::mistrusted), finding("b"),
              finding("r", Verdict::replicas_differ), finding("a"), finding("fine", Verdict::passed),
              finding("left", Verdict::ignored), finding("cut", Verdict::unreadable)});
  EXPECT_THAT(names(folds(r, 10)), ElementsAre("b", "r", "a", "cut", "small", "gone"));
}

TEST(Folds, WhatFollowsFromAnotherFailureIsNotThere) {
  Finding follows = finding("after", Verdict::inherited);
  follows.origin = Origin{Origin::Kind::inherited, 0, "", "a"};
  EXPECT_THAT(names(folds(report({finding("a"), follows}), 10)), ElementsAre("a"));
}

// a.x, a.y and b.x fail, three are missing: two lines for what is missing would cost a line of what failed.
TEST(Folds, TheLeastSevereGoUpTheTreeFirst) {
  const Report r =
      report({finding("a.x"), finding("a.y"), finding("b.x"), finding("m.n.p", Verdict::missing_actual),
              finding("m.n.q", Verdict::missing_actual), finding("m.o", Verdict::missing_actual)});
  EXPECT_THAT(names(folds(r, 6)), ElementsAre("a.x", "a.y", "b.x", "m.n.p", "m.n.q", "m.o"));
  EXPECT_THAT(names(folds(r, 5)), ElementsAre("a.x", "a.y", "b.x", "m.n", "m.o"));
  EXPECT_THAT(names(folds(r, 4)), ElementsAre("a.x", "a.y", "b.x", "m"));
  EXPECT_THAT(names(folds(r, 3)), ElementsAre("a", "b.x", "m"));
  EXPECT_THAT(names(folds(r, 2)), ElementsAre("all over the model", "m"));
  EXPECT_THAT(folds(r, 1), SizeIs(2)) << "every kind of verdict has a line";
}

TEST(Folds, TensorsOfAModuleAreItsName) {
  Finding backward = finding("layers.1.norm", Verdict::failed, "grad");
  backward.id.phase = Phase::backward;
  Finding other = backward;
  other.id.module = "layers.2.norm";
  other.id.slot = "grad_input";
  for (Finding* f : {&backward, &other}) f->name = to_string(f->id);
  EXPECT_THAT(names(folds(report({backward, other}), 1)), ElementsAre("layers.1-2.norm (backward)"));
}

TEST(Folds, NothingIsLost) {
  Report r;
  for (int i = 0; i < 5000; ++i) {
    std::string module;
    for (int digits = i; digits > 0; digits /= 7)
      module += std::string(1, static_cast<char>('a' + digits % 7)) + ".";
    r.findings.push_back(finding(module + "end", i % 3 == 0 ? Verdict::failed : Verdict::mistrusted));
  }
  for (const std::size_t most : {2u, 5u, 20u, 1000u}) {
    const std::vector<Fold> list = folds(r, most);
    EXPECT_LE(list.size(), most);
    EXPECT_EQ(std::accumulate(list.begin(), list.end(), std::int64_t{0},
                              [](std::int64_t sum, const Fold& f) { return sum + f.count; }),
              5000);
  }
}

}  // namespace
}  // namespace assay::folds_test
