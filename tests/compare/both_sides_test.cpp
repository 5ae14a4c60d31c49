// What one side's records say of the other's: its operators, and which of the two is wrong.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "assay/compare/calls/partial_sums.h"
#include "assay/operators/engine/golden.h"
#include "isolated.h"

namespace assay::both_sides_test {
namespace {

using testing::HasSubstr;

constexpr auto f = Phase::forward;

// An activation under the name of each side's class.
auto activation(const std::string& of_actual, const std::string& op, const Attributes& attributes = {}) {
  return [=](MemoryDump& d, bool is_actual) {
    for (const std::int64_t mb : {0, 1, 2}) {
      const Tensor x = normal_tensor(DType::float32, {16, 32}, static_cast<std::uint64_t>(1 + mb));
      const std::string name = is_actual ? of_actual : "SiLU";
      d.add({0, mb, f, "act", "input", "input", 0}, x).op = name;
      d.add({0, mb, f, "act", "output", "y", 0},
            is_actual ? output(op, {{"x", x}}, attributes, "y") : output("silu", {{"x", x}}, {}, "y"))
          .op = name;
    }
  };
}

TEST(BothSides, AnotherClassIsHeldAgainstTheOperatorOfTheReference) {
  for (const std::string name : {"GELU", "SomebodysActivation"}) {
    const Report report = isolated(activation(name, "gelu"));
    EXPECT_EQ(created(report), (std::vector<std::string>(3, "act output y"))) << name;
    const Finding& wrong = finding(report, "act", "output");
    ASSERT_FALSE(wrong.diagnoses.empty()) << name;
    EXPECT_EQ(wrong.diagnoses.front().cause, Cause::operation);
    EXPECT_THAT(sentence(wrong.diagnoses.front()), HasSubstr("it is gelu, where the reference has silu"));
  }
  EXPECT_EQ(isolated(activation("SomebodysActivation", "silu")).exit_status(), 0);
}

// A norm whose reference is wrong in its second micro-batch.
void norm(MemoryDump& d, bool is_actual) {
  const Tensor weight = normal_tensor(DType::float32, {32}, 9);
  d.add({0, -1, f, "norm", "param", "weight", 0}, weight);
  for (const std::int64_t mb : {0, 1}) {
    const Tensor x = normal_tensor(DType::float32, {16, 32}, static_cast<std::uint64_t>(1 + mb));
    const Tensor y = noisy(output("rms_norm", {{"x", x}, {"weight", weight}}, {}, "y"), is_actual ? 7 : 8);
    d.add({0, mb, f, "norm", "input", "x", 0}, x).op = "RMSNorm";
    d.add({0, mb, f, "norm", "output", "y", 0}, !is_actual && mb == 1 ? with_one_wrong(y) : y).op = "RMSNorm";
  }
}

TEST(BothSides, AReferenceThatIsWrongIsNoRounding) {
  const Report report = isolated(norm);
  EXPECT_EQ(report.exit_status(), 1);
  EXPECT_EQ(created(report), std::vector<std::string>{"norm output y"});
  const auto wrong = std::ranges::find(report.findings, Verdict::failed, &Finding::verdict);
  ASSERT_NE(wrong, report.findings.end());
  EXPECT_THAT(wrong->origin->reason, HasSubstr("it is the reference that is wrong: rms_norm"));
}

TEST(SharedSums, AreKnownByTheCutOfAWeightAlone) {
  const Parts whole, halves = {{{0, 2}}, {{2, 4}}};
  const Operator& linear = find_operator("linear");
  const auto sums = shared_sums(linear, "y", {{"x", {whole, whole}}, {"w", {whole, halves}}});
  ASSERT_EQ(sums.size(), 1U);
  EXPECT_EQ(sums[0].input, "w");
  EXPECT_TRUE(sums[0].is_linear) << "a product is linear in its weights";
}

}  // namespace
}  // namespace assay::both_sides_test
