#include "diff_dumps.h"

namespace assay::diff_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

using Findings = std::vector<std::pair<std::string, Verdict>>;
using F = std::pair<std::string, Verdict>;

Findings verdicts(const Report& r) {
  Findings list;
  for (const Finding& f : r.findings) list.emplace_back(f.name, f.verdict);
  return list;
}

TEST(Diff, EqualDumpsPass) {
  MemoryDump a("a"), r("r");
  for (MemoryDump* d : {&a, &r}) {
    d->add("x", float32({1, 2}));
    d->add("y", tensor(DType::int64, {3}));
  }
  const Report report = diff(a, r, options());
  EXPECT_THAT(verdicts(report), ElementsAre(F("x", Verdict::passed), F("y", Verdict::passed)));
  EXPECT_EQ(report.exit_status(), 0);
  EXPECT_EQ(report.first_failure(), nullptr);
  EXPECT_EQ(report.summary(), "2 compared: 2 passed, 0 failed, 0 inherited; 0 not compared");
}

TEST(Diff, OrderIsTheReferencesWithExtrasWhereTheyWere) {
  MemoryDump a("a"), r("r");
  for (const char* name : {"x0", "c", "x1", "a", "x2"}) a.add(name, float32({1}));
  for (const char* name : {"a", "b", "c"}) r.add(name, float32({1}));
  EXPECT_THAT(verdicts(diff(a, r, options())),
              ElementsAre(F("x0", Verdict::missing_reference), F("a", Verdict::passed),
                          F("x2", Verdict::missing_reference), F("b", Verdict::missing_actual),
                          F("c", Verdict::passed), F("x1", Verdict::missing_reference)));
}

TEST(Diff, MissingOnEitherSideIsAFinding) {
  MemoryDump both("both"), one("one");
  both.add("x", float32({1})), both.add("y", float32({1}));
  one.add("x", float32({1}));
  const Report lacks = diff(one, both, options());
  EXPECT_EQ(at(lacks, "y").verdict, Verdict::missing_actual);
  EXPECT_EQ(at(lacks, "y").reason, "only in both");
  EXPECT_EQ(lacks.exit_status(), 1);
  EXPECT_EQ(lacks.first_failure()->name, "y");
  EXPECT_EQ(lacks.summary(), "1 compared: 1 passed, 0 failed, 0 inherited; 1 not compared");
  const Report extra = diff(both, one, options());
  EXPECT_EQ(at(extra, "y").verdict, Verdict::missing_reference);
  EXPECT_EQ(at(extra, "y").reason, "only in both");
  EXPECT_EQ(extra.exit_status(), 1);
}

TEST(Diff, NothingComparedIsTrouble) {
  MemoryDump a("a"), r("r"), empty("empty");
  a.add("x", float32({1}));
  a.add("x2", float32({1}));
  r.add("y", float32({1}));
  EXPECT_EQ(diff(a, r, options()).exit_status(), 2);
  EXPECT_EQ(diff(empty, empty, options()).exit_status(), 2);
  EXPECT_EQ(diff(a, a, options("[[ignore]]\nmatch='*'\nreason='all'")).exit_status(), 2);
  DiffOptions only = options();
  only.only = "z";
  EXPECT_EQ(diff(a, a, only).exit_status(), 2);
  // Shapes that differ are no comparison either.
  r.add("x", float32({1, 2}));
  EXPECT_EQ(diff(a, r, options()).exit_status(), 2);
}

// README: no rule is a finding; the elements were measured and differ.
TEST(Diff, WhatIsMeasuredWithoutARuleIsAFinding) {
  MemoryDump a("a"), r("r");
  a.add("x", float32({1.0006}));
  r.add("x", float32({1}));
  const Report report = diff(a, r, options());
  EXPECT_THAT(verdicts(report), ElementsAre(F("x", Verdict::no_rule)));
  EXPECT_FALSE(report.compared_nothing());
  EXPECT_EQ(report.exit_status(), 1);
}

TEST(Diff, TheFirstFailureIsTheFirstThatWasMeasured) {
  MemoryDump a("a"), r("r");
  r.add("missing", float32({1}));
  for (const char* name : {"good", "bad", "worse"}) r.add(name, float32({1}));
  a.add("good", float32({1})), a.add("bad", float32({1.01})), a.add("worse", float32({9}));
  const Report report = diff(a, r, options("[[count]]\nmatch='*'\ncount=1"));
  EXPECT_EQ(report.first_failure()->name, "bad");
  EXPECT_EQ(report.exit_status(), 1);
  EXPECT_EQ(report.summary(), "3 compared: 1 passed, 2 failed, 0 inherited; 1 not compared");
}

TEST(Diff, AnUnreadableTensorIsTroubleAndTheOthersGoOn) {
  MemoryDump a("a"), r("r");
  for (MemoryDump* d : {&a, &r}) {
    for (const char* name : {"x", "y", "z"}) d->add(name, float32({1}));
  }
  r.damage("y");
  const Report report = diff(a, r, options());
  EXPECT_THAT(verdicts(report),
              ElementsAre(F("x", Verdict::passed), F("y", Verdict::unreadable), F("z", Verdict::passed)));
  EXPECT_EQ(at(report, "y").reason, "r: y: damaged");
  EXPECT_EQ(report.exit_status(), 2);
}

TEST(Diff, OnlyTakesAGlobOrAName) {
  MemoryDump a("a");
  for (const char* name : {"l.0.x", "l.1.x", "l.1.y", "odd[*]"}) a.add(name, float32({1}));
  DiffOptions o = options();
  const auto names = [&](const char* only) {
    o.only = only;
    std::vector<std::string> list;
    for (const Finding& f : diff(a, a, o).findings) list.push_back(f.name);
    return list;
  };
  EXPECT_THAT(names("l.*.x"), ElementsAre("l.0.x", "l.1.x"));
  EXPECT_THAT(names("l.1.y"), ElementsAre("l.1.y"));
  EXPECT_THAT(names("odd[*]"), ElementsAre("odd[*]"));
  EXPECT_THAT(names("x"), IsEmpty());
}

TEST(Diff, RepeatNamesTheTensorForAShell) {
  MemoryDump a("a"), r("r");
  a.add("it's; $(rm x)", float32({1})), r.add("it's; $(rm x)", float32({2}));
  DiffOptions o = options();
  o.repeat = "assay diff a r";
  EXPECT_EQ(diff(a, r, o).findings.front().repeat, "assay diff a r --only 'it'\\''s; $(rm x)'");
}

TEST(Diff, NotesOfBothDumpsAreKept) {
  MemoryDump a("a"), r("r");
  a.add("x", float32({1})), r.add("x", float32({1}));
  a.notes = {"left out"};
  r.notes = {"r/file: assumed"};
  EXPECT_THAT(diff(a, r, options()).notes, ElementsAre("a: left out", "r/file: assumed"));
}

TEST(Diff, RenamesTheActualSide) {
  MemoryDump a("a"), r("r");
  a.add("module.x", float32({1})), a.add("module.z", float32({5}));
  r.add("x", float32({1}));
  const Report report = diff(a, r, options("[[rename]]\nfrom='^module\\.'\nto=''"));
  EXPECT_THAT(verdicts(report), ElementsAre(F("x", Verdict::passed), F("z", Verdict::missing_reference)));
}

TEST(Diff, TwoArraysAloneInTheirFilesArePaired) {
  MemoryDump a("a.npz"), r("r.npz");
  a.add("x", float32({1})), r.add("y", float32({1}));
  EXPECT_THAT(verdicts(diff(a, r, options())),
              ElementsAre(F("x", Verdict::missing_reference), F("y", Verdict::missing_actual)));
  MemoryDump left("left.npy"), right("right.npy");
  left.add("left", float32({1})), right.add("right", float32({1}));
  EXPECT_THAT(verdicts(diff(left, right, options())), ElementsAre(F("right", Verdict::passed)));
}

TEST(Diff, WhatAReaderLeftOutIsNotCompared) {
  MemoryDump a("a"), r("r");
  a.add("x", float32({1})), r.add("x", float32({1}));
  r.left_out = {"r/y.npy: no known format"};
  const Report report = diff(a, r, options());
  EXPECT_EQ(report.exit_status(), 1);
  EXPECT_THAT(verdicts(report), ElementsAre(F("x", Verdict::passed), F("reference: r/y.npy: no known format",
                                                                       Verdict::not_comparable)));
  EXPECT_EQ(diff(a, r, options("[[ignore]]\nmatch='reference: r/y.npy*'\nreason='empty'")).exit_status(), 0);
}

TEST(Diff, TellsHowFarItIs) {
  MemoryDump a("a");
  for (const char* name : {"x", "y"}) a.add(name, float32({1}));
  DiffOptions o = options();
  std::vector<std::string> seen;
  o.progress = [&](std::size_t done, std::size_t total, const std::string& name) {
    seen.push_back(std::to_string(done) + "/" + std::to_string(total) + " " + name);
  };
  diff(a, a, o);
  EXPECT_THAT(seen, ElementsAre("0/16 x", "8/16 y"));
}

// Two of four experts nearly tie for the second place of the first token.
TEST(Diff, ExpertsThatNearlyTieAreExplained) {
  MemoryDump a("a"), r("r");
  const Identity logits = identity(Phase::forward, "router", "output", "logits"),
                 indices = identity(Phase::forward, "router", "output", "indices");
  const std::vector<double> scores = {3, 1, 1.00001, -2};
  for (MemoryDump* d : {&a, &r}) d->add(logits, Tensor::from_values(DType::float32, {1, 4}, scores));
  a.add(indices, Tensor::from_indices({1, 2}, std::vector<std::int64_t>{0, 1}));
  r.add(indices, Tensor::from_indices({1, 2}, std::vector<std::int64_t>{0, 2}));
  const Finding near = diff(a, r, options()).findings[1];
  EXPECT_EQ(near.verdict, Verdict::failed);
  EXPECT_THAT(near.notes,
              ElementsAre(HasSubstr("1 of 1 tokens choose other experts, all of them at near-ties")));
  MemoryDump far("far");
  far.add(logits, Tensor::from_values(DType::float32, {1, 4}, scores));
  far.add(indices, Tensor::from_indices({1, 2}, std::vector<std::int64_t>{0, 3}));
  EXPECT_THAT(diff(far, r, options()).findings[1].notes, ElementsAre(HasSubstr("none of them at near-ties")));
}

}  // namespace
}  // namespace assay::diff_test
