// Dumps of which one side or both have sketches only.
#include <cmath>
#include <functional>
#include <limits>
#include <random>

#include "../dumps/sketched_dump.h"
#include "assay/compare/pairs/sketched_pair.h"
#include "diff_dumps.h"

namespace assay::sketch_diff_test {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

const Shape shape = {64, 40};

std::vector<double> normal(unsigned seed, double scale = 1) {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> draw(0, scale);
  std::vector<double> values(static_cast<std::size_t>(element_count(shape)));
  for (double& v : values) v = draw(random);
  return values;
}

Tensor stored(const std::vector<double>& values, DType dtype = DType::float32) {
  return Tensor::from_values(dtype, shape, values);
}

std::vector<double> plus(std::vector<double> a, double factor, const std::vector<double>& b) {
  for (std::size_t i = 0; i < a.size(); ++i) a[i] += factor * b[i];
  return a;
}

Identity output() {
  return identity(Phase::forward, "layer", "output", "y");
}

// One tensor on both sides.
struct Both {
  MemoryDump actual{"actual"}, reference{"reference"};
  Both(const std::vector<double>& a, const std::vector<double>& g, DType dtype = DType::float32) {
    actual.add(output(), stored(a, dtype)).count = 40;
    reference.add(output(), stored(g, dtype)).count = 40;
  }
  Finding judged(DiffOptions how = options()) const {
    return diff(Sketched(actual), Sketched(reference), how).findings.at(0);
  }
};

TEST(SketchDiff, EqualFingerprintsPass) {
  const Both same(normal(1), normal(1));
  for (const char* policy : {"telechat3", "bitwise"}) {
    const Finding f = same.judged(options("", {policy}));
    EXPECT_EQ(f.verdict, Verdict::passed);
    EXPECT_EQ(f.rule, "every bit equal, by fingerprints of 64 bits");
  }
  const Both integers(std::vector<double>(2560, 3), std::vector<double>(2560, 3), DType::int64);
  EXPECT_EQ(integers.judged().verdict, Verdict::passed);
}

TEST(SketchDiff, RoundingAgreesBySketch) {
  const Both near(plus(normal(1), 1e-6, normal(2)), normal(1));
  const Sketched actual(near.actual), reference(near.reference);
  const std::pair<const Dump*, const Dump*> sides[] = {
      {&actual, &reference}, {&actual, &near.reference}, {&near.actual, &reference}};
  for (const auto& [a, g] : sides) {
    DiffOptions how = options();
    const Report report = diff(*a, *g, how);
    const Finding& f = report.findings.at(0);
    EXPECT_EQ(f.verdict, Verdict::agrees_by_sketch);
    EXPECT_THAT(f.reason, StartsWith("relative L2 "));
    EXPECT_THAT(f.reason, HasSubstr("the elements were not compared"));
    ASSERT_TRUE(f.sketch);
    EXPECT_NEAR(f.sketch->distance / f.sketch->norm, 1e-6, 3e-7);
    EXPECT_LE(f.sketch->low, 1e-6 * f.sketch->norm);
    EXPECT_GE(f.sketch->high, 1e-6 * f.sketch->norm);
    EXPECT_EQ(report.exit_status(), 1);
    EXPECT_THAT(report.summary(), HasSubstr("1 not compared, 1 of them agree by sketch"));
    how.accept_sketches = true;
    const Report accepted = diff(*a, *g, how);
    EXPECT_EQ(accepted.exit_status(), 0);
    EXPECT_THAT(accepted.findings.at(0).rule, StartsWith("a sketch only, as accepted: telechat3"));
  }
}

TEST(SketchDiff, FarOnesFailAndNearOnesAreMistrusted) {
  const Both far(plus(normal(1), 0.01, normal(2)), normal(1));
  EXPECT_EQ(far.judged().verdict, Verdict::failed);
  EXPECT_THAT(far.judged().reason, HasSubstr("only sketches were compared"));
  EXPECT_GT(far.judged().ratio, 10);
  // Allowed is 1e-4 (sqrt(n) + |g|), 2e-4 of the norm.
  const Both limit(plus(normal(1), 1.9e-4, normal(2)), normal(1));
  EXPECT_EQ(limit.judged().verdict, Verdict::mistrusted);
  EXPECT_THAT(limit.judged().reason, StartsWith("near the limit"));
  EXPECT_EQ(far.judged(options("", {"bitwise"})).verdict, Verdict::failed);
}

TEST(SketchDiff, WhatIsBelowTheToleranceIsMistrusted) {
  const Both tiny(plus(normal(1, 1e-6), 1e-7, normal(2)), normal(1, 1e-6));
  EXPECT_EQ(tiny.judged().verdict, Verdict::mistrusted);
  EXPECT_THAT(tiny.judged().reason, HasSubstr("zeros would agree, too"));
}

TEST(SketchDiff, NaNAndInfinitiesAreCounted) {
  std::vector<double> odd = normal(1);
  odd[100] = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(Both(odd, odd).judged().verdict, Verdict::passed);
  const Finding f = Both(odd, normal(1)).judged();
  EXPECT_EQ(f.verdict, Verdict::failed);
  EXPECT_THAT(f.reason, StartsWith("NaN or Inf differ: 1 NaN and 0 Inf against 0 and 0"));
}

TEST(SketchDiff, FinerSketchesAndOtherSeeds) {
  const Both near(plus(normal(1), 1e-6, normal(2)), normal(1));
  const Sketched fine(near.actual, {8, 8, 32}), coarse(near.reference), other(near.reference, {4, 4, 16, 7});
  EXPECT_EQ(diff(fine, coarse, options()).findings.at(0).verdict, Verdict::agrees_by_sketch);
  const Finding f = diff(coarse, other, options()).findings.at(0);
  EXPECT_EQ(f.verdict, Verdict::unreadable);
  EXPECT_THAT(f.reason, HasSubstr("expected one seed"));
}

TEST(SketchDiff, LeadingDimensionsTakenAsOne) {
  MemoryDump actual("a"), reference("g");
  actual.add(output(), Tensor(stored(normal(1)).reshaped({4, 16, 40})));
  reference.add(output(), stored(normal(1)));
  EXPECT_EQ(diff(Sketched(actual), Sketched(reference), options()).findings.at(0).verdict, Verdict::passed);
  EXPECT_EQ(diff(actual, Sketched(reference), options()).findings.at(0).verdict, Verdict::passed);
}

TEST(SketchDiff, OtherUnitsAreDivided) {
  MemoryDump actual_values("a"), reference_values("g");
  const Identity id = identity(Phase::backward, "layer", "grad_output", "y");
  actual_values.add(id, stored(plus(std::vector<double>(2560), 4, normal(1))));
  reference_values.add(id, stored(normal(1)));
  const Sketched actual(actual_values), reference(reference_values);
  const std::vector<LogicalTensor> a = logical_tensors(actual), g = logical_tensors(reference);
  Sides sides{actual, reference, a, g};
  const auto apart = [&] {
    const SketchedPair both = sketched_pair(sides, {&a[0], &g[0]});
    return distance(both.actual.sketch, both.reference.sketch).estimate;
  };
  EXPECT_GT(apart(), 1);
  sides.convention.emplace().factor = 4;
  EXPECT_EQ(apart(), 0);
}

// Causes.

std::string cause_of(const Finding& f) {
  return f.diagnoses.empty() ? "" : sentence(f.diagnoses.front());
}

TEST(SketchCauses, FactorsSignsAndZeros) {
  const std::vector<double> right = normal(1), none(right.size());
  DiffOptions how = options();
  how.sizes = {{"tp", 6}};
  EXPECT_EQ(cause_of(Both(plus(none, 6, right), right).judged(how)), "actual = 6 x reference (6 = tp)");
  EXPECT_EQ(cause_of(Both(plus(none, 1. / 3, right), right).judged()), "actual = 0.3333333 x reference");
  EXPECT_EQ(cause_of(Both(plus(none, 0.75, right), right).judged()), "actual = 0.75 x reference");
  EXPECT_EQ(cause_of(Both(plus(none, -1, right), right).judged()),
            "actual = -reference: the sign is flipped");
  EXPECT_EQ(cause_of(Both(none, right).judged()), "every element is zero");
  EXPECT_EQ(cause_of(Both(plus(none, 2, right), right, DType::bfloat16).judged()), "actual = 2 x reference");
}

// A tolerance above all values passes no such tensor.
TEST(SketchCauses, AProvedMistakeFailsWhatTheRuleWouldPass) {
  const std::vector<double> right = normal(1, 1e-7), none(right.size());
  const Finding f = Both(plus(none, 2, right), right).judged();
  EXPECT_EQ(f.verdict, Verdict::failed);
  EXPECT_EQ(cause_of(f), "actual = 2 x reference");
}

TEST(SketchCauses, NothingIsNamedOfWhatIsNotLinear) {
  std::vector<double> right = normal(1), squared = right, swapped = right,
                      noisy = plus(right, 0.3, normal(2));
  for (double& v : squared) v *= std::abs(v);
  std::rotate(swapped.begin(), swapped.begin() + 40, swapped.end());
  for (const auto& wrong : {squared, swapped, noisy}) {
    const Finding f = Both(wrong, right).judged();
    EXPECT_EQ(f.verdict, Verdict::failed);
    EXPECT_EQ(cause_of(f), "");
  }
}

TEST(SketchCauses, WrongRowsAreLocated) {
  std::vector<double> right = normal(1), wrong = right, other = normal(3);
  for (std::size_t i = 0; i < wrong.size() / 2; ++i) wrong[i] = other[i];
  const Finding f = Both(wrong, right).judged();
  EXPECT_EQ(cause_of(f), "");
  ASSERT_EQ(f.notes.size(), 1u);
  EXPECT_EQ(f.notes[0], "errors: rows 0 to 31 of 64");
}

TEST(SketchCauses, AnotherMicroBatch) {
  MemoryDump actual("a"), reference("g");
  for (std::int64_t m = 0; m < 3; ++m) {
    Identity id = output();
    id.micro_batch = m;
    reference.add(id, stored(normal(static_cast<unsigned>(m))));
    actual.add(id, stored(normal(m == 2 ? 0 : static_cast<unsigned>(m))));
  }
  const Report report = diff(Sketched(actual), Sketched(reference), options());
  EXPECT_THAT(cause_of(report.findings.at(2)), StartsWith("it is the reference's tensor of micro-batch 0"));
}

TEST(SketchDiff, SaysAtWhichStepRecordingsPart) {
  MemoryDump actual("a"), reference("g");
  for (std::int64_t step : {0, 20, 40, 60}) {
    for (const char* module : {"first", "second"}) {
      Identity id = output();
      id.step = step;
      id.module = module;
      const bool is_wrong = step >= 40 && id.module == "second";
      reference.add(id, stored(normal(1)));
      actual.add(id, stored(is_wrong ? plus(normal(1), 0.1, normal(2)) : plus(normal(1), 1e-6, normal(2))));
    }
  }
  const Report report = diff(Sketched(actual), Sketched(reference), options());
  EXPECT_THAT(report.notes,
              testing::Contains("of 4 steps the sides part at step 40, in second output y (step 40, "
                                "micro-batch 0, forward); 2 before agree"));
  EXPECT_EQ(diff(Sketched(reference), Sketched(reference), options()).parting(), "");
}

// A parameter before and after a step.
struct Step {
  MemoryDump actual{"actual"}, reference{"reference"};
  Finding judged(const std::vector<double>& before, const std::vector<double>& after,
                 const std::vector<double>& right) {
    const Identity first{0, -1, Phase::forward, "layer", "param", "weight", 0},
        last{0, -1, Phase::optimizer, "layer", "param", "weight", 0};
    for (MemoryDump* dump : {&actual, &reference}) {
      dump->add(first, stored(before));
      dump->add(last, stored(dump == &actual ? after : right));
    }
    return diff(Sketched(actual), Sketched(reference), options()).findings.at(1);
  }
};

TEST(SketchCauses, StepsOfParameters) {
  const std::vector<double> before = normal(1), update = normal(2, 0.01), right = plus(before, -1, update);
  EXPECT_THAT(cause_of(Step().judged(before, before, right)),
              StartsWith("2560 of 2560 elements are not updated: they are the parameter before the step"));
  EXPECT_THAT(cause_of(Step().judged(before, plus(before, 1, update), right)),
              StartsWith("the step goes up"));
  EXPECT_THAT(cause_of(Step().judged(before, plus(before, -0.5, update), right)),
              StartsWith("the step is 0.5 times that of the reference"));
  EXPECT_THAT(
      cause_of(Step().judged(before, plus(right, 0.01, before), right)),
      StartsWith("actual = reference + 0.01 x its parameter before the step (layer param weight (step 0, "
                 "forward)): the reference's weight decay is missing"));
}

TEST(SketchCauses, AMissingAllReduce) {
  MemoryDump actual("a"), reference("g");
  actual.world_size = 2;
  actual.mesh = {{"tp"}, {2}};
  const Identity id{0, -1, Phase::backward, "layer", "grad", "weight", 0};
  const std::vector<double> a = normal(1), b = normal(2);
  actual.add_copy(id, 0, stored(a));
  actual.add_copy(id, 1, stored(b));
  reference.add(id, stored(plus(a, 1, b)));
  const Finding f = diff(Sketched(actual), Sketched(reference), options()).findings.at(0);
  EXPECT_EQ(f.verdict, Verdict::replicas_differ);
  EXPECT_THAT(f.reason, HasSubstr("ranks 0 and 1 (tp) should hold the same bits; their fingerprints differ"));
  EXPECT_THAT(cause_of(f), HasSubstr("the all-reduce over tp is missing"));
}

TEST(SketchCauses, WeightsOfMicroBatches) {
  MemoryDump actual("a"), reference("g");
  actual.world_size = 3;
  actual.mesh = {{"dp"}, {3}};
  Identity whole{0, -1, Phase::backward, "layer", "grad", "weight", 0}, share = whole;
  share.arg = "weight.unreduced";
  std::vector<double> sum(2560), wrong(2560);
  const double counts[] = {1, 0, 1.5};
  for (int rank = 0; rank < 3; ++rank) {
    Identity loss = identity(Phase::forward, "", "loss", "", rank);
    const std::vector<double> own = normal(static_cast<unsigned>(rank));
    actual.add(loss, Tensor(DType::float32, {})).rank = rank;
    Record& r = actual.add_copy(share, rank, stored(own));
    r.placements = {Placement{Placement::Kind::partial, 0}};
    sum = plus(sum, 1, own);
    wrong = plus(wrong, counts[rank], own);
  }
  actual.add(whole, stored(wrong));
  reference.add(whole, stored(sum));
  const Report report = diff(Sketched(actual), Sketched(reference), options());
  EXPECT_THAT(cause_of(at(report, to_string(whole))),
              StartsWith("micro-batches 0, 1, 2 count 1, 0, 1.5 times, each once in the reference"));
}

}  // namespace
}  // namespace assay::sketch_diff_test
