#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <new>
#include <stdexcept>

#include "assay/operators/engine/golden.h"
#include "recorded_pair.h"

namespace assay::trouble_test {
namespace {

// A dump that reads tensors of one slot so many times, and fails at the next.
class FailingDump : public MemoryDump {
 public:
  using MemoryDump::MemoryDump;
  std::string slot;
  mutable int reads_left = 1 << 20;
  std::function<void()> fail = [] { throw std::bad_alloc(); };

  Tensor read(std::size_t index) const override {
    if (records[index].id.slot == slot && reads_left-- <= 0) fail();
    return MemoryDump::read(index);
  }
};

// A norm whose result is 1 % too large.
struct FaultyNorm {
  MemoryDump actual{"actual"};
  FailingDump reference{"reference"};

  FaultyNorm() {
    const Tensor x = normal_tensor(DType::float32, {8, 32}, 1);
    const Tensor weight = normal_tensor(DType::float32, {32}, 2);
    const Tensor y = compute_golden(find_operator("rms_norm"),
                                    std::vector<NamedTensor>{{"x", x}, {"weight", weight}}, {}, Level::fp64)
                         .front()
                         .tensor;
    const Tensor right = Tensor::from_values(DType::float32, y.shape(), y.values());
    const auto record = [&](MemoryDump& dump, const Tensor& result) {
      dump.add({0, -1, Phase::forward, "norm", "param", "weight", 0}, weight);
      dump.add({0, 0, Phase::forward, "norm", "input", "x", 0}, x).op = "rms_norm";
      dump.add({0, 0, Phase::forward, "norm", "output", "y", 0}, result).op = "rms_norm";
    };
    record(actual, plus(right, 0.01, right));
    record(reference, right);
  }

  Finding finding() const {
    DiffOptions options;
    options.policies.push_back(load_policy("telechat3"));
    return diff(actual, reference, options).findings.back();
  }
};

TEST(OutOfMemory, WithoutAJudgedCallTheReportStands) {
  FaultyNorm norm;
  ASSERT_TRUE(std::isfinite(norm.finding().origin->local_ratio)) << "the call is judged";
  norm.reference.slot = "input";
  norm.reference.reads_left = 1;  // the comparison's own
  const Finding f = norm.finding();
  EXPECT_EQ(f.verdict, Verdict::failed);
  EXPECT_TRUE(std::isnan(f.origin->local_ratio));
  EXPECT_THAT(first_of(f.diagnoses), testing::HasSubstr("1.01")) << "nor is the search for causes ended";
  EXPECT_THAT(f.notes, testing::Contains(testing::StartsWith("not judged on its own recorded inputs: ")));
}

TEST(OutOfMemory, WithoutADiagnosisTheReportStands) {
  FaultyNorm norm;
  constexpr int many = 1 << 20;
  norm.reference.slot = "output";
  norm.reference.reads_left = many;
  norm.finding();
  const int reads = many - norm.reference.reads_left;
  norm.reference.reads_left = reads - 1;  // the last is that of the search for causes
  const Finding f = norm.finding();
  EXPECT_EQ(f.verdict, Verdict::failed);
  EXPECT_THAT(f.notes, testing::Contains(testing::StartsWith("no diagnosis: ")));
}

TEST(DamagedInput, IsSaidByTheTensorThatNeedsIt) {
  FaultyNorm norm;
  norm.reference.slot = "input";
  norm.reference.reads_left = 1;
  norm.reference.fail = [] { throw Error("x.npy: damaged"); };
  EXPECT_THAT(norm.finding().notes,
              testing::Contains("not judged on its own recorded inputs: x.npy: damaged"));
}

// A bug is no trouble of one tensor: neither the comparison, nor a judged call, nor the search for causes
// keeps it for itself.
TEST(Bug, LeavesTheComparison) {
  FaultyNorm norm;
  norm.reference.fail = [] { throw std::out_of_range("a bug"); };
  for (const char* slot : {"input", "output"}) {
    norm.reference.slot = slot;
    constexpr int many = 1 << 20;
    norm.reference.reads_left = many;
    norm.finding();
    const int reads = many - norm.reference.reads_left;
    ASSERT_GE(reads, 2) << slot;
    for (int before = 0; before < reads; ++before) {
      norm.reference.reads_left = before;
      EXPECT_THROW(norm.finding(), std::out_of_range) << slot << ", read " << before;
    }
  }
}

}  // namespace
}  // namespace assay::trouble_test
