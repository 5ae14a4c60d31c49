// Gradients that ranks add up otherwise than the reference.
#include <gmock/gmock.h>

#include "recorded_pair.h"

namespace assay::shares_test {
namespace {

constexpr Identity whole() {
  return {0, -1, Phase::backward, "e", "grad", "weight", 0};
}

// Two ranks with two micro-batches each, which recorded their shares; and one rank with all.
struct Ranks {
  Tensor first = normal_tensor(DType::float32, {16, 8}, 1),
         second = normal_tensor(DType::float32, {16, 8}, 2);

  Finding with(const Tensor& total) const {
    const Identity share{0, -1, Phase::backward, "e", "grad", "weight.unreduced", 0};
    MemoryDump reference("r"), actual("a");
    actual.mesh = {{"dp"}, {2}};
    actual.world_size = 2;
    for (const int mb : {0, 1, 2, 3}) {
      const Identity tokens{0, mb, Phase::forward, "e", "input", "x", 0};
      const Tensor x = normal_tensor(DType::float32, {4}, 10 + static_cast<std::uint64_t>(mb));
      reference.add(tokens, x);
      actual.add_copy(tokens, mb % 2, x);
    }
    reference.add(share, plus(first, 1, second));
    reference.add(whole(), plus(first, 1, second));
    actual.add_copy(share, 0, first).placements = {{Placement::Kind::partial}};
    actual.add_copy(share, 1, second).placements = {{Placement::Kind::partial}};
    actual.add_copy(whole(), 0, total);
    DiffOptions options;
    options.policies.push_back(load_policy("telechat3"));
    const Report report = diff(actual, reference, options);
    return *std::ranges::find(report.findings, whole(), &Finding::id);
  }
};

TEST(Shares, ThoseOfOneRankAreNamed) {
  const Ranks r;
  EXPECT_EQ(r.with(plus(r.first, 1, r.second)).verdict, Verdict::passed);
  const Finding f = r.with(r.first);
  ASSERT_FALSE(f.diagnoses.empty());
  EXPECT_TRUE(
      agrees(f.diagnoses.front(), {Cause::weights, {.micro_batches = {0, 1, 2, 3}, .counts = {1, 0, 1, 0}}}))
      << sentence(f.diagnoses.front());
}

TEST(Shares, OnesThatCountOtherwiseAreNamed) {
  const Ranks r;
  const Finding f = r.with(plus(r.first, 0.375, r.second));
  ASSERT_FALSE(f.diagnoses.empty());
  ASSERT_EQ(f.diagnoses.front().cause, Cause::weights);
  EXPECT_NEAR(f.diagnoses.front().parameters.counts.at(1), 0.375, 1e-5);
  const Finding other =
      r.with(plus(plus(r.first, 1, r.second), 1, normal_tensor(DType::float32, {16, 8}, 3)));
  EXPECT_EQ(other.verdict, Verdict::failed);
  EXPECT_EQ(std::ranges::count(other.diagnoses, Cause::weights, &Diagnosis::cause), 0)
      << "something else is added";
}

TEST(Shares, AFactorOfAllIsAFactor) {
  const Ranks r;
  const Tensor sum = plus(r.first, 1, r.second);
  const Finding f = r.with(noisy(plus(sum, -2. / 3, sum), 3));
  ASSERT_FALSE(f.diagnoses.empty());
  EXPECT_EQ(f.diagnoses.front().cause, Cause::factor) << sentence(f.diagnoses.front());
}

TEST(Shares, ASumInANarrowDtypeIsNamed) {
  const Ranks r;
  const auto narrow = [](const Tensor& t) {
    return Tensor::from_values(DType::bfloat16, t.shape(), t.values());
  };
  const Tensor sum = plus(narrow(r.first), 1, narrow(r.second));
  const Finding f = r.with(Tensor::from_values(DType::float32, {16, 8}, sum.values()));
  ASSERT_FALSE(f.diagnoses.empty());
  EXPECT_TRUE(agrees(f.diagnoses.front(), {Cause::precision, {.dtype = DType::bfloat16}}))
      << sentence(f.diagnoses.front());
}

}  // namespace
}  // namespace assay::shares_test
