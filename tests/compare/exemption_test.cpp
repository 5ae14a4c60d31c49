// What is outside of the end-to-end tolerance and right by its own inputs is exempt, by a named kind; every
// report counts it, and nothing but a tolerance is exempted from.
#include "assay/compare/result/exemption.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "assay/compare/diff.h"
#include "assay/compare/report/report.h"
#include "assay/operators/engine/golden.h"
#include "memory_dump.h"
#include "recorded_pair.h"

namespace assay::exemption_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

Tensor made(std::string_view op, const std::vector<NamedTensor>& inputs) {
  const std::vector<NamedTensor> outputs = compute_golden(find_operator(op), inputs, {}, Level::fp64);
  return Tensor::from_values(DType::float32, outputs.front().tensor.shape(), outputs.front().tensor.values());
}

Tensor scaled(const Tensor& t, double factor) {
  std::vector<double> values = t.values();
  for (double& v : values) v *= factor;
  return Tensor::from_values(DType::float32, t.shape(), values);
}

// A projection, then the difference of its result and nearly the same: an error within the tolerance is one
// outside of it there.
struct Chain : MemoryDump {
  /// @param given    a factor of what comes in, which nothing made
  /// @param product  a factor of the projection's result: a fault
  explicit Chain(double given, double product = 1) : MemoryDump("d") {
    const Tensor right = normal_tensor(DType::float32, {64, 16}, 3, 100),
                 w = normal_tensor(DType::float32, {64, 16}, 4);
    const Tensor x = scaled(right, given), y = scaled(made("linear", {{"x", x}, {"w", w}}), product);
    const Tensor near = scaled(made("linear", {{"x", right}, {"w", w}}), 1.001);  // alike in all dumps
    add({0, -1, Phase::forward, "dense", "param", "weight", 0}, w);
    add({0, 0, Phase::forward, "dense", "input", "x", 0}, x).op = "matmul";
    add({0, 0, Phase::forward, "dense", "output", "y", 0}, y).op = "matmul";
    add({0, 0, Phase::forward, "minus", "input", "a", 0}, y).op = "sub";
    add({0, 0, Phase::forward, "minus", "input", "b", 0}, near).op = "sub";
    add({0, 0, Phase::forward, "minus", "output", "y", 0}, made("sub", {{"a", y}, {"b", near}})).op = "sub";
  }
};

DiffOptions by(const char* policy) {
  DiffOptions options;
  options.policies.push_back(load_policy(policy));
  return options;
}

const Finding& last(const Report& report) {
  return report.findings.back();
}

std::string everything(const Report& report) {
  TextStyle style;
  style.all = true;
  return to_text(report, style);
}

constexpr double rounding = 1.25e-6;  // torch: 1.3e-6 of the value, in float32

TEST(Exemption, AmplifiedRoundingPasses) {
  const Report report = diff(Chain(1 + rounding), Chain(1), by("torch"));
  ASSERT_EQ(last(report).verdict, Verdict::exempt) << everything(report);
  EXPECT_EQ(last(report).exemption->kind, Exemption::Kind::amplified_rounding);
  EXPECT_LE(last(report).exemption->measured, 1);
  EXPECT_THAT(last(report).exemption->source, HasSubstr("sub on its own recorded inputs: error/allowed"));
  EXPECT_GT(last(report).ratio, 1) << "end to end it is outside";
  EXPECT_EQ(report.exit_status(), 0);
  EXPECT_EQ(report.first_failure(), nullptr);
}

TEST(Exemption, IsCountedAndExplainedByEveryReport) {
  const Report report = diff(Chain(1 + rounding), Chain(1), by("torch"));
  const std::int64_t exempt = report.count(Verdict::exempt);
  ASSERT_GT(exempt, 0);
  EXPECT_THAT(report.summary(), HasSubstr(fmt::format("passed, {} exempt, 0 failed", exempt)));
  const auto text = AllOf(HasSubstr("exempt"), HasSubstr("amplified rounding"));
  for (const std::string& written : {to_text(report, {}), to_markdown(report), to_github_annotations(report),
                                     to_csv(report), to_json(report), to_html(report)})
    EXPECT_THAT(written, text);
  const auto json = nlohmann::json::parse(to_json(report));
  EXPECT_EQ(json["counts"]["exempt"], exempt);
  EXPECT_EQ(json["findings"].back()["verdict"], "exempt");
  EXPECT_EQ(json["findings"].back()["exemption"]["kind"], "amplified rounding");
  EXPECT_LE(json["findings"].back()["exemption"]["measured"], 1);
  EXPECT_THAT(to_junit(report), testing::Not(HasSubstr("<failure")));
}

TEST(Exemption, WhereBitsAreAskedForThereIsNone) {
  const Report report = diff(Chain(1 + rounding), Chain(1), by("bitwise"));
  EXPECT_EQ(report.count(Verdict::exempt), 0);
  EXPECT_EQ(report.exit_status(), 1);
}

// The product passes end to end, and what follows from it is right by its own inputs; but the product is
// wrong.
TEST(Exemption, NoneStandsBehindAResultThatIsWrongOnItsOwnInputs) {
  const Report report = diff(Chain(1, 1 + rounding), Chain(1), by("torch"));
  ASSERT_NE(report.first_failure(), nullptr) << everything(report);
  EXPECT_EQ(report.first_failure()->name, "dense output y (step 0, micro-batch 0, forward)");
  EXPECT_EQ(report.count(Verdict::exempt), 0);
  EXPECT_EQ(last(report).verdict, Verdict::inherited);
}

TEST(Exemption, AllKindsHaveARow) {
  for (const ExemptionRow& row : exemption_rows()) {
    EXPECT_EQ(name(row.kind), row.name);
    EXPECT_FALSE(row.meaning.empty());
  }
}

}  // namespace
}  // namespace assay::exemption_test
