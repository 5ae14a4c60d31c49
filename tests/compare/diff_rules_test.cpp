#include "diff_dumps.h"

// What decides a verdict: rules, counts and policies.
namespace assay::diff_rules_test {
namespace {

using testing::ElementsAre;
using testing::Field;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

TEST(Diff, IgnoredByRuleIsSaid) {
  MemoryDump a("a"), r("r");
  for (MemoryDump* d : {&a, &r}) d->add("x", float32({1}));
  r.add("m.rng_state", float32({1}));
  const Report report = diff(a, r, options("[[ignore]]\nmatch='*.rng_state'\nreason='not numeric'"));
  EXPECT_EQ(at(report, "m.rng_state").verdict, Verdict::ignored);
  EXPECT_EQ(at(report, "m.rng_state").reason, "rules.toml, [[ignore]] 1: not numeric");
  EXPECT_EQ(report.exit_status(), 0);
  EXPECT_EQ(report.summary(),
            "1 compared: 1 passed, 0 failed, 0 inherited; 0 not compared; 1 ignored by rule");
}

TEST(Diff, RulesWithoutAMatchAreNoted) {
  MemoryDump a("a");
  a.add("x", float32({1}));
  DiffOptions o = options("[[count]]\nmatch='tpyo'\ncount=3");
  EXPECT_THAT(diff(a, a, o).notes, ElementsAre("rule without a match: rules.toml, [[count]] 1 ('tpyo')"));
  o.only = "x";
  EXPECT_THAT(diff(a, a, o).notes, IsEmpty()) << "of one tensor nothing can be said about the rules";
}

TEST(Diff, RulesGiveCountAndPolicy) {
  MemoryDump a("a"), r("r");
  a.add("x", float32({1 + 3e-4})), a.add("y", float32({1 + 0x1p-20}));
  r.add("x", float32({1})), r.add("y", float32({1}));
  const Report report =
      diff(a, r, options("[[count]]\nmatch='x'\ncount=2000\n[[tolerance]]\nmatch='y'\npolicy='bitwise'"));
  EXPECT_EQ(at(report, "x").verdict, Verdict::passed);
  EXPECT_EQ(at(report, "x").count, 2000);
  EXPECT_EQ(at(report, "x").count_source, "rules.toml, [[count]] 1");
  EXPECT_EQ(at(report, "y").verdict, Verdict::failed);
  EXPECT_EQ(at(report, "y").rule, "bitwise: every bit equal");
}

TEST(Diff, TheDumpMayKnowTheCount) {
  MemoryDump a("a"), r("r");
  a.add("x", float32({1 + 3e-4}));
  r.add("x", float32({1})).count = 2000;
  const Finding f = diff(a, r, options()).findings.front();
  EXPECT_EQ(f.verdict, Verdict::passed);
  EXPECT_EQ(f.count_source, "the dump");
}

Tensor ones(Shape shape, double value = 1) {
  const std::vector<double> values(static_cast<std::size_t>(element_count(shape)), value);
  return Tensor::from_values(DType::float32, std::move(shape), values);
}

TEST(Diff, CountsFollowFromOperatorAndShapes) {
  MemoryDump d("d");
  const auto add = [&](Phase phase, const char* module, const char* slot, const char* arg, Shape shape,
                       const char* op, std::int64_t micro_batch = 0) {
    d.add(identity(phase, module, slot, arg, micro_batch), ones(std::move(shape))).op = op;
  };
  add(Phase::forward, "proj", "param", "weight", {6, 2500}, "", -1);
  add(Phase::forward, "proj", "input", "a", {3, 2500}, "matmul");
  add(Phase::forward, "proj", "output", "y", {3, 6}, "matmul");
  add(Phase::backward, "proj", "grad_input", "a", {3, 2500}, "matmul");
  add(Phase::backward, "proj", "grad", "weight", {6, 2500}, "matmul");
  // Of two micro-batches, 3 tokens and 4.
  add(Phase::forward, "proj", "input", "a", {4, 2500}, "matmul", 1);
  add(Phase::backward, "proj", "grad", "weight", {6, 2500}, "matmul", -1);
  add(Phase::forward, "norm", "param", "weight", {40}, "", -1);
  add(Phase::forward, "norm", "input", "x", {7, 40}, "rms_norm");
  add(Phase::forward, "norm", "output", "y", {7, 40}, "rms_norm");
  add(Phase::forward, "odd", "input", "x", {7, 40}, "no_such_operator");
  add(Phase::forward, "odd", "output", "y", {7, 40}, "no_such_operator");
  const Report report = diff(d, d, options());
  const auto count = [&](Phase phase, const char* module, const char* slot, const char* arg,
                         std::int64_t micro_batch = 0) {
    return at(report, to_string(identity(phase, module, slot, arg, micro_batch))).count;
  };
  // Sums run over the input width, the output width and the tokens.
  EXPECT_EQ(count(Phase::forward, "proj", "output", "y"), 2500);
  EXPECT_EQ(count(Phase::backward, "proj", "grad_input", "a"), 6);
  EXPECT_EQ(count(Phase::backward, "proj", "grad", "weight"), 3);
  EXPECT_EQ(count(Phase::backward, "proj", "grad", "weight", -1), 7);
  EXPECT_EQ(count(Phase::forward, "norm", "output", "y"), 40);
  EXPECT_EQ(count(Phase::forward, "odd", "output", "y"), std::nullopt);
  EXPECT_EQ(count(Phase::forward, "norm", "input", "x"), std::nullopt);
  EXPECT_THAT(at(report, to_string(identity(Phase::forward, "norm", "output", "y"))).count_source,
              HasSubstr("rms_norm y of the recorded shapes"));
}

// 0.02 is inside bfloat16's row and outside float32's.
TEST(Diff, TheCoarsestDtypeUpstreamDecidesTheRow) {
  MemoryDump a("a"), r("r");
  a.add("before", float32({1.02})), r.add("before", float32({1}));
  a.add("cast", tensor(DType::bfloat16, {1})), r.add("cast", float32({1}));
  a.add("after", float32({1.02})), r.add("after", float32({1}));
  a.add("half", tensor(DType::float16, {1.02})), r.add("half", tensor(DType::float16, {1}));
  a.add("codes", tensor(DType::int8, {1})), r.add("codes", tensor(DType::int8, {1}));
  DiffOptions o = options("[[count]]\nmatch='*'\ncount=1");
  const Report report = diff(a, r, o);
  EXPECT_EQ(at(report, "before").verdict, Verdict::failed);
  EXPECT_THAT(at(report, "before").rule, HasSubstr("telechat3 float32"));
  EXPECT_THAT(at(report, "before").rule, Not(HasSubstr("upstream")));
  EXPECT_THAT(at(report, "cast").rule, HasSubstr("telechat3 bfloat16")) << "its own";
  EXPECT_EQ(at(report, "after").verdict, Verdict::passed);
  EXPECT_THAT(at(report, "after").rule, HasSubstr("telechat3 bfloat16"));
  EXPECT_THAT(at(report, "after").rule, HasSubstr("bfloat16 was used upstream, first in cast"));
  EXPECT_THAT(at(report, "half").rule, HasSubstr("telechat3 bfloat16"));
  EXPECT_EQ(at(report, "codes").rule, "integers: every bit equal");
  // Alone it is judged by the same row: a repeated command must say the same.
  o.only = "after";
  const Report again = diff(a, r, o);
  ASSERT_EQ(again.findings.size(), 1u);
  EXPECT_EQ(again.findings[0].rule, at(report, "after").rule);
  EXPECT_EQ(again.findings[0].verdict, Verdict::passed);
}

// 1 and 1.125 are neighbours in e4m3; what is made of them is no e4m3.
TEST(Diff, RowsOfEightBitsAreOfWhatIsStoredInThem) {
  MemoryDump a("a"), r("r");
  const auto fp8 = [](double v) { return tensor(DType::float8_e4m3fn, {v, 16, 0.25}); };
  a.add("near", fp8(1.125)), r.add("near", fp8(1));
  a.add("far", fp8(1.25)), r.add("far", fp8(1));
  a.add("after", float32({1.02})), r.add("after", float32({1}));
  const Report report = diff(a, r, options("[[count]]\nmatch='*'\ncount=1"));
  EXPECT_EQ(at(report, "near").verdict, Verdict::passed);
  EXPECT_THAT(at(report, "near").rule,
              HasSubstr("telechat3 float8_e4m3fn, count >= 0: |a-g| <= 0.0339531 + 0.157 |g|"));
  EXPECT_EQ(at(report, "far").verdict, Verdict::failed);
  EXPECT_EQ(at(report, "after").verdict, Verdict::failed);
  EXPECT_THAT(at(report, "after").rule, HasSubstr("telechat3 float32"));
}

TEST(Diff, OtherPoliciesAreReportedBeside) {
  MemoryDump a("a"), r("r");
  a.add("x", float32({1 + 1e-4})), r.add("x", float32({1}));
  const Report report = diff(a, r, options("", {"telechat3", "torch", "bitwise"}));
  EXPECT_THAT(report.policies,
              ElementsAre(Field(&PolicyUsed::name, "telechat3"), Field(&PolicyUsed::name, "torch"),
                          Field(&PolicyUsed::name, "bitwise")));
  const Finding& f = report.findings.front();
  EXPECT_EQ(f.verdict, Verdict::passed) << "the first decides";
  ASSERT_EQ(f.others.size(), 2u);
  EXPECT_EQ(f.others[0].policy, "torch");
  EXPECT_EQ(f.others[0].verdict, Verdict::failed);
  EXPECT_NEAR(f.others[0].ratio, 1e-4 / (1e-5 + 1.3e-6), 0.02);
  EXPECT_EQ(f.others[1].verdict, Verdict::failed);
  EXPECT_EQ(report.exit_status(), 0);
}

TEST(Diff, TwoTensorsOfOneNameAreAnError) {
  MemoryDump a("a"), r("r");
  for (const char* name : {"x", "module.x", "y"}) a.add(name, float32({1}));
  r.add("x", float32({1}));
  try {
    diff(a, r, options("[[rename]]\nfrom='^module\\.'\nto=''"));
    FAIL() << "was accepted";
  } catch (const Error& e) {
    EXPECT_STREQ(e.what(),
                 "[[rename]]: 'x' and 'module.x' of the actual side both become 'x'; expected a name each");
  }
}

TEST(Diff, DerivedBoundsNeedAnOperator) {
  MemoryDump a("a");
  a.add("x", float32({1}));
  const Report report = diff(a, a, options("", {"derived"}));
  EXPECT_EQ(report.findings.front().verdict, Verdict::no_rule);
  EXPECT_EQ(report.exit_status(), 2) << "nothing was compared";
}

}  // namespace
}  // namespace assay::diff_rules_test
