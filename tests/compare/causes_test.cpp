#include <fmt/format.h>
#include <gmock/gmock.h>

#include "recorded_pair.h"

namespace assay::causes_test {
namespace {

using testing::HasSubstr;

Identity output(std::int64_t micro_batch, std::int64_t step = 0) {
  return {step, micro_batch, Phase::forward, "m", "output", "y", 0};
}
const Identity weight{0, -1, Phase::forward, "m", "param", "weight", 0},
    bias{0, -1, Phase::forward, "m", "param", "bias", 0},
    stepped{0, -1, Phase::optimizer, "m", "param", "weight", 0};

const Diagnosis* find(const Finding& f, Cause cause) {
  const auto found = std::ranges::find(f.diagnoses, cause, &Diagnosis::cause);
  return found == f.diagnoses.end() ? nullptr : &*found;
}

std::string text_of(const Finding& f, Cause cause) {
  const Diagnosis* d = find(f, cause);
  return d == nullptr ? first_of(f.diagnoses) : sentence(*d);
}

TEST(Causes, WeightDecayIsATermThatWasAdded) {
  const Tensor w = normal_tensor(DType::float32, {64}, 1);
  const Tensor after = plus(w, 0.01, normal_tensor(DType::float32, {64}, 2));
  RecordedPair run;
  run.add(weight, w);
  run.add(stepped, plus(after, -0.01, w), after);
  const std::string text = text_of(run.diff().findings.back(), Cause::added);
  EXPECT_THAT(text, HasSubstr("reference - 0.01 x its parameter before the step"));
  EXPECT_THAT(text, HasSubstr("weight decay that the reference does not have"));
}

// Weights around 1, as of norms: their decay is nearly one number, but for digits below the tolerance.
TEST(Causes, DecayOfWeightsThatAreNearlyOne) {
  const Tensor ones = Tensor::from_values(DType::float32, {20}, Values(20, 1));
  const Tensor w = plus(ones, 0.1, normal_tensor(DType::float32, {20}, 1));
  const Tensor after = plus(w, 0.001, normal_tensor(DType::float32, {20}, 2));
  RecordedPair run;
  run.add(weight, w);
  run.add(stepped, plus(after, -0.001, w), after);
  EXPECT_THAT(text_of(run.diff().findings.back(), Cause::added),
              HasSubstr("reference - 0.001 x its parameter"));
}

// Of two that fit the nearer one; and of many only the nearest are looked at.
TEST(Causes, TheNearestStepIsStale) {
  constexpr std::int64_t last = 100;
  const auto stale = [](std::int64_t from) {
    RecordedPair run;
    for (std::int64_t step = 0; step <= last; ++step) {
      const bool is_old = step == 0 || step == from;
      const auto seed = is_old ? std::uint64_t{1} : static_cast<std::uint64_t>(2 + step);
      const Tensor right = normal_tensor(DType::float32, {32}, seed);
      run.add(output(0, step), step == last ? normal_tensor(DType::float32, {32}, 1) : right, right);
    }
    const Finding f = run.diff().findings.back();
    return find(f, Cause::stale) == nullptr ? "" : sentence(*find(f, Cause::stale));
  };
  EXPECT_THAT(stale(last - 2), HasSubstr("the reference's tensor of step 98 "));
  EXPECT_EQ(stale(0), "");
}

// Of many micro-batches before only the nearest are looked at.
TEST(Causes, AMicroBatchNearbyIsATerm) {
  constexpr std::int64_t last = 100;
  const auto added = [](std::int64_t from) {
    RecordedPair run;
    Tensor left;
    for (std::int64_t mb = 0; mb <= last; ++mb) {
      const Tensor right = normal_tensor(DType::float32, {32}, static_cast<std::uint64_t>(1 + mb));
      if (mb == from) left = right;
      run.add(output(mb), mb == last ? plus(right, 1, left) : right, right);
    }
    const Finding f = run.diff().findings.back();
    return find(f, Cause::added) == nullptr ? "" : sentence(*find(f, Cause::added));
  };
  EXPECT_THAT(added(last - 2), HasSubstr("micro-batch 98"));
  EXPECT_EQ(added(0), "");
}

TEST(Causes, TheTensorOfAnotherMicroBatchOrStepIsStale) {
  RecordedPair run;
  for (const std::int64_t step : {0, 1}) {
    for (const std::int64_t mb : {0, 1}) {
      const Tensor right = normal_tensor(DType::float32, {32}, static_cast<std::uint64_t>(10 * step + mb));
      const Tensor old = normal_tensor(DType::float32, {32}, static_cast<std::uint64_t>(10 * step));
      run.add(output(mb, step), step == 1 && mb == 1 ? old : right, right);
    }
  }
  EXPECT_THAT(text_of(run.diff().findings.back(), Cause::stale),
              HasSubstr("the reference's tensor of micro-batch 0"));
}

TEST(Causes, ABiasThatIsAddedOnEveryRankIsATerm) {
  for (const DType d : {DType::float32, DType::bfloat16}) {
    const Tensor b = normal_tensor(d, {48}, 3), y = normal_tensor(d, {20, 48}, 4);
    RecordedPair run;
    run.add(bias, b);
    run.add(output(0), plus(y, 3, b), y);
    EXPECT_THAT(text_of(run.diff().findings.back(), Cause::added), HasSubstr("reference + 3 x the bias"))
        << name(d);
  }
}

// Of gradients of 1e-5 a bfloat16 tolerance of 3.2e-2 (1 + |g|) says nothing. On their own scale they are
// half.
TEST(Causes, SmallTensorsAreExplainedOnTheirOwnScale) {
  const auto pair = [](double factor, double noise) {
    const Tensor right = normal_tensor(DType::bfloat16, {24, 40}, 1, 1e-5);
    Values values = normal_tensor(DType::bfloat16, {24, 40}, 2, noise).values();
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] += factor * right.value(static_cast<std::int64_t>(i));
    RecordedPair run;
    for (MemoryDump* dump : {&run.actual, &run.reference}) dump->mesh = {{"dp"}, {2}};
    run.add(output(0), Tensor::from_values(DType::bfloat16, right.shape(), values), right, "", 1000);
    return run.diff().findings.back();
  };
  const Finding half = pair(0.5, 0), noise = pair(1, 1e-5);
  EXPECT_EQ(half.verdict, Verdict::mistrusted) << half.reason;
  EXPECT_THAT(text_of(half, Cause::factor), HasSubstr("actual = 0.5 x reference (0.5 = 1/dp"));
  EXPECT_EQ(noise.verdict, Verdict::mistrusted) << noise.reason;
  EXPECT_EQ(first_of(noise.diagnoses), "nothing");
}

// What was recorded beside a failing tensor explains nothing of it.
void expect_no_other_tensor(const RecordedPair& run, const std::string& what) {
  const Report report = run.diff();
  const Finding& f = report.findings.back();
  ASSERT_NE(f.verdict, Verdict::passed) << what;
  EXPECT_EQ(find(f, Cause::stale), nullptr) << what << ": " << text_of(f, Cause::stale);
  EXPECT_EQ(find(f, Cause::added), nullptr) << what << ": " << text_of(f, Cause::added);
}

TEST(Causes, UnrelatedErrorsAreNeitherStaleNorATerm) {
  int pairs = 0, failed = 0;
  for (const DType d : {DType::float32, DType::bfloat16}) {
    for (std::uint64_t seed = 0; seed < 20; ++seed) {
      for (const Shape& shape : {Shape{1}, Shape{2}, Shape{6}, Shape{3, 4}, Shape{40, 30}}) {
        for (const double scale : {0.05, 0.2, 3.0}) {
          RecordedPair run;
          run.add(bias, normal_tensor(d, {shape.back()}, 100 + seed));
          run.add(weight, normal_tensor(d, shape, 200 + seed));
          for (const std::int64_t mb : {0, 1, 2})
            run.add(output(mb), normal_tensor(d, shape, 300 + seed + 50 * static_cast<std::uint64_t>(mb)));
          const Tensor y = normal_tensor(d, shape, 600 + seed);
          run.add(output(3), plus(y, scale + 0.1, normal_tensor(d, shape, 700 + seed)), y);
          ++pairs;
          if (run.diff().findings.back().verdict == Verdict::passed) continue;
          ++failed;
          expect_no_other_tensor(run, fmt::format("seed {} {} {}", seed, to_string(shape), scale));
        }
      }
    }
  }
  EXPECT_GT(10 * failed, 9 * pairs) << "what passes has no cause to look for";
}

TEST(Causes, ConstantsAndScalarsProveNothing) {
  const auto constant = [](const Shape& shape, double value) {
    return Tensor::from_values(DType::float32, shape,
                               Values(static_cast<std::size_t>(element_count(shape)), value));
  };
  for (const Shape& shape : {Shape{}, Shape{1}, Shape{500}, Shape{20, 30}}) {
    RecordedPair run;
    run.add(weight, constant(shape, 0.7));
    run.add(bias, constant({shape.empty() ? 1 : shape.back()}, 0.3));
    run.add(output(0), constant(shape, 1.5));
    run.add(output(1), constant(shape, 1.5), constant(shape, 1));
    expect_no_other_tensor(run, to_string(shape));
  }
}

}  // namespace
}  // namespace assay::causes_test
