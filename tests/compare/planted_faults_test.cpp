#include <gmock/gmock.h>

#include "recorded_pair.h"

namespace assay::planted_faults_test {
namespace {

using testing::HasSubstr;

// The faults that msprobe's tensor compare, its statistics compare or its diff_analyze let pass, planted in a
// run of float32 modules whose other results have clean rounding noise.
Identity output(const std::string& module) {
  return {0, 0, Phase::forward, module, "output", "y", 0};
}

const char* const modules[] = {"linear", "softmax", "gelu", "matmul", "layer_norm", "to"};

// Every module's result, that of `faulty` as `fault` makes it.
template <class F>
Finding planted(const std::string& faulty, const Shape& shape, F fault) {
  RecordedPair run;
  for (std::uint64_t seed = 0; const char* module : modules) {
    const bool is_faulty = module == faulty;
    const Tensor right = normal_tensor(DType::float32, is_faulty ? shape : Shape{8, 16}, ++seed);
    const Tensor clean = noisy(right, seed + 100);
    run.add(output(module), is_faulty ? fault(clean) : clean, right, "", 1000);
  }
  const Report report = run.diff();
  EXPECT_EQ(report.exit_status(), 1);
  EXPECT_EQ(report.first_failure()->id.module, faulty);
  EXPECT_EQ(report.count(Verdict::failed), 1);
  return *report.first_failure();
}

template <class F>
auto each(F change) {
  return [change](const Tensor& t) {
    Values values = t.values();
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = change(i, values[i]);
    return Tensor::from_values(t.dtype(), t.shape(), values);
  };
}

TEST(PlantedFaults, RelativeNoiseInFloat32) {
  Random random(1);
  const Finding f = planted("linear", {500, 400},
                            each([&](std::size_t, double v) { return v * (1 + 5e-3 * random.normal()); }));
  EXPECT_EQ(f.verdict, Verdict::failed);
  EXPECT_EQ(first_of(f.diagnoses), "nothing");
}

TEST(PlantedFaults, AHundredOfManyElementsTimesTen) {
  const Finding f = planted("softmax", {2500, 1000},
                            each([](std::size_t i, double v) { return i % 25000 == 17 ? 10 * v : v; }));
  EXPECT_EQ(f.verdict, Verdict::failed);
  EXPECT_EQ(f.metrics->over, 100);
  EXPECT_EQ(first_of(f.diagnoses), "factor: 100 of 2500000 elements are 10 x reference, all others pass");
}

TEST(PlantedFaults, SevenNaN) {
  const Finding f = planted("gelu", {300, 200},
                            each([](std::size_t i, double v) { return i % 9000 == 1 ? std::nan("") : v; }));
  EXPECT_EQ(f.verdict, Verdict::failed);
  EXPECT_THAT(f.reason, HasSubstr("NaN or Inf differ in 7 of 60000 elements, first at [0, 1]: nan against "));
  EXPECT_THAT(first_of(f.diagnoses), HasSubstr("7 of 60000 elements are NaN: nothing recorded before it is"));
}

TEST(PlantedFaults, AFlippedSign) {
  const Finding f = planted("matmul", {300, 200}, each([](std::size_t, double v) { return -v; }));
  EXPECT_EQ(f.verdict, Verdict::failed);
  EXPECT_EQ(first_of(f.diagnoses), "sign: actual = -reference: the sign is flipped");
}

TEST(PlantedFaults, AnotherDType) {
  const Finding f = planted("to", {300, 200}, [](const Tensor& t) {
    return Tensor::from_values(DType::bfloat16, t.shape(), t.values());
  });
  EXPECT_EQ(f.verdict, Verdict::failed);
  EXPECT_THAT(first_of(f.diagnoses),
              HasSubstr("precision: bfloat16 where the reference is float32: the reference rounded to "
                        "nearest even"));
}

// Values so small that none is outside.
TEST(PlantedFaults, AnotherDTypeIsNotedBelowTheTolerance) {
  RecordedPair run;
  unsigned seed = 7;
  for (const char* module : {"before", "to", "after"}) {
    const Tensor right = normal_tensor(DType::float32, {40}, seed++, 1e-3);
    const bool is_to = std::string_view(module) == "to";
    const Tensor wrong = Tensor::from_values(is_to ? DType::bfloat16 : DType::float32, {40}, right.values());
    run.add(output(module), wrong, right, "", 1000);
  }
  const Report report = run.diff();
  EXPECT_EQ(report.count(Verdict::failed), 0);
  EXPECT_THAT(report.notes, testing::Contains(HasSubstr("another dtype in 1 tensor, first in to output y")));
  EXPECT_THAT(report.findings[1].notes, testing::Contains(HasSubstr("bfloat16 against float32")));
}

TEST(PlantedFaults, ARunInAnotherDTypeIsJudgedByItsRows) {
  RecordedPair run;
  unsigned seed = 8;
  for (const char* module : {"embedding", "linear", "norm"}) {
    const Tensor right = normal_tensor(DType::float32, {40}, seed++);
    const bool keeps_float32 = std::string_view(module) == "norm";
    const DType d = keeps_float32 ? DType::float32 : DType::bfloat16;
    run.add(output(module), Tensor::from_values(d, {40}, right.values()), right, "", 1000);
  }
  const Report report = run.diff();
  EXPECT_EQ(report.exit_status(), 0);
  EXPECT_THAT(report.notes, testing::IsEmpty());
}

TEST(PlantedFaults, AnOperatorOnOneSideOnly) {
  for (const bool actual_lacks_it : {true, false}) {
    RecordedPair run;
    run.add(output("dropout"), float32({1, 2}));
    (actual_lacks_it ? run.reference : run.actual).add(output("cat"), float32({3, 4}));
    run.add(output("linear"), float32({5, 6}));
    const Report report = run.diff();
    EXPECT_EQ(report.exit_status(), 1);
    ASSERT_EQ(report.findings.size(), 3U);
    EXPECT_EQ(report.findings[1].verdict,
              actual_lacks_it ? Verdict::missing_actual : Verdict::missing_reference);
  }
}

// What msprobe marks, though it is rounding: errors of 1e-8 where the reference is zero or nearly so.
TEST(PlantedFaults, TinyErrorsOfTinyValuesAreNone) {
  RecordedPair run;
  Random random(2);
  Values right = random.normals(2000), wrong = right;
  for (std::size_t i = 0; i < right.size(); i += 3) {
    right[i] = i % 2 == 0 ? 0 : 1e-9;
    wrong[i] = right[i] + 1e-8;
  }
  run.add(output("layer_norm"), tensor(DType::float32, wrong), tensor(DType::float32, right));
  EXPECT_EQ(run.diff().exit_status(), 0);
}

}  // namespace
}  // namespace assay::planted_faults_test
