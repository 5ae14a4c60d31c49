#include <fmt/format.h>
#include <gmock/gmock.h>

#include "recorded_pair.h"
#include "seeds.h"

namespace assay::seeded_runs_test {
namespace {

using testing::HasSubstr;

// Faults that other tensors of the run explain: other ranks, steps, micro-batches, parameters, gradients.
constexpr DType dtypes[] = {DType::float32, DType::bfloat16};
const Shape shape = {24, 32};

Identity identity(Phase phase, const char* slot, const char* arg, std::int64_t mb = -1,
                  std::int64_t step = 0) {
  return {step, mb, phase, "layers.1.m", slot, arg, 0};
}

void expect_last(const RecordedPair& run, const std::string& text, const std::string& what) {
  const Report report = run.diff();
  const Finding& f = report.findings.back();
  EXPECT_NE(f.verdict, Verdict::passed) << what;
  EXPECT_THAT(first_of(f.diagnoses), HasSubstr(text)) << what;
  EXPECT_LE(f.diagnoses.size(), 1U) << what;
}

template <class F>
void for_each_run(F f) {
  for (const DType dtype : dtypes) {
    for (const std::uint64_t seed : seeds()) f(dtype, seed, fmt::format("{} seed {}", name(dtype), seed));
  }
}

TEST(SeededRuns, PartialSumsOfReplicas) {
  for_each_run([](DType d, std::uint64_t seed, const std::string& what) {
    for (const int ranks : {2, 4}) {
      RecordedPair run;
      const Identity id = identity(Phase::backward, "grad", "weight");
      run.actual.world_size = ranks;
      run.actual.mesh = {{"tp"}, {ranks}};
      Values sum(static_cast<std::size_t>(element_count(shape)), 0);
      for (int rank = 0; rank < ranks; ++rank) {
        const Tensor part = normal_tensor(d, shape, 10 * seed + static_cast<std::uint64_t>(rank), 2);
        for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += part.value(static_cast<std::int64_t>(i));
        run.actual.add_copy(id, rank, part).count = 1000;
      }
      run.reference.add(id, noisy(Tensor::from_values(d, shape, sum), seed)).count = 1000;
      expect_last(run, "partial_sum: their sum is the reference", what);
    }
  });
}

// Cut over dp, and over tp not yet summed.
TEST(SeededRuns, PartialSumsOfShards) {
  for_each_run([](DType d, std::uint64_t seed, const std::string& what) {
    RecordedPair run;
    const Identity id = identity(Phase::backward, "grad", "weight");
    run.actual.world_size = 4;
    run.actual.mesh = {{"dp", "tp"}, {2, 2}};
    Values whole;
    for (int dp = 0; dp < 2; ++dp) {
      Values sum(24 / 2 * 32, 0);
      for (int tp = 0; tp < 2; ++tp) {
        const Tensor part =
            normal_tensor(d, {12, 32}, 10 * seed + static_cast<std::uint64_t>(2 * dp + tp), 2);
        for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += part.value(static_cast<std::int64_t>(i));
        Record& r = run.actual.add(id, part);
        r.rank = 2 * dp + tp;
        r.mesh_coordinate = {dp, tp};
        r.placements = {Placement{Placement::Kind::shard, 0}, Placement{}};
        r.global_shape = shape;
        r.count = 1000;
      }
      whole.insert(whole.end(), sum.begin(), sum.end());
    }
    run.reference.add(id, noisy(Tensor::from_values(d, shape, whole), seed)).count = 1000;
    expect_last(run, "partial_sum: their sum is the reference", what);
  });
}

TEST(SeededRuns, StaleTensors) {
  for_each_run([](DType d, std::uint64_t seed, const std::string& what) {
    const auto at = [&](std::int64_t step, std::int64_t mb) {
      return normal_tensor(d, shape, 100 * seed + static_cast<std::uint64_t>(10 * step + mb), 2);
    };
    for (const auto& [step, mb, text] :
         {std::tuple(1, 0, "stale: it is the reference's tensor of micro-batch 0"),
          {0, 1, "stale: it is the reference's tensor of step 0"},
          {0, 0, "stale: it is the reference's tensor of step 0, micro-batch 0"}}) {
      RecordedPair run;
      for (const std::int64_t s : {0, 1}) {
        for (const std::int64_t m : {0, 1}) {
          const Tensor right = at(s, m);
          const Tensor wrong = s == 1 && m == 1 ? noisy(at(step, mb), seed) : right;
          run.add(identity(Phase::forward, "output", "y", m, s), wrong, right, "", 1000);
        }
      }
      expect_last(run, text, what);
    }
  });
}

TEST(SeededRuns, AddedTerms) {
  struct Fault {
    Identity known;
    Shape of;
    double factor;
    Identity wrong;
    std::string text;
  };
  const Identity after = identity(Phase::optimizer, "param", "weight"),
                 grad = identity(Phase::backward, "grad", "weight", -1, 1),
                 output = identity(Phase::forward, "output", "y", 0);
  const Fault faults[] = {
      {identity(Phase::forward, "param", "bias"), {32}, 1, output, "reference + 1 x the bias"},
      {identity(Phase::forward, "param", "bias"), {32}, -1, output, "reference - 1 x the bias"},
      {identity(Phase::forward, "param", "bias"), {32}, 3, output, "reference + 3 x the bias"},
      {identity(Phase::forward, "input", "x", 0), shape, 1, output, "reference + 1 x the module's input"},
      {identity(Phase::forward, "param", "weight"), shape, -0.1, after,
       "weight decay that the reference does not have"},
      {identity(Phase::forward, "param", "weight"), shape, 0.1, after,
       "the reference's weight decay is missing"},
      {identity(Phase::backward, "grad", "weight"), shape, 1, grad, "1 x its gradient of the step before"},
      {identity(Phase::forward, "output", "y", 0), shape, 1, identity(Phase::forward, "output", "y", 1),
       "1 x the tensor of a micro-batch before"},
      {identity(Phase::backward, "grad", "weight.unreduced", 0), shape, -1,
       identity(Phase::backward, "grad", "weight.unreduced", 1), "1 x the tensor of a micro-batch before"},
  };
  for_each_run([&](DType d, std::uint64_t seed, const std::string& what) {
    for (const Fault& fault : faults) {
      RecordedPair run;
      const Tensor term = normal_tensor(d, fault.of, 100 * seed, 2),
                   right = normal_tensor(d, shape, 100 * seed + 1);
      run.add(fault.known, term);
      run.add(fault.wrong, plus(noisy(right, seed), fault.factor, term), right, "", 1000);
      expect_last(run, "added: actual = ", what + fault.text);
      expect_last(run, fault.text, what);
    }
  });
}

}  // namespace
}  // namespace assay::seeded_runs_test
