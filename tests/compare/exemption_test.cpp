// What is outside of the end-to-end tolerance and right by its own inputs is exempt, by a named kind; every
// report counts it, and nothing but a tolerance is exempted from.
#include "assay/compare/result/exemption.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <nlohmann/json.hpp>

#include "assay/compare/diff.h"
#include "assay/compare/report/report.h"
#include "assay/operators/engine/golden.h"
#include "isolated.h"
#include "memory_dump.h"

namespace assay::exemption_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

Tensor made(std::string_view op, const std::vector<NamedTensor>& inputs) {
  const std::vector<NamedTensor> outputs = compute_golden(find_operator(op), inputs, {}, Level::fp64);
  return Tensor::from_values(DType::float32, outputs.front().tensor.shape(), outputs.front().tensor.values());
}

Tensor scaled(const Tensor& t, double factor, double rounding) {
  std::vector<double> values = t.values();
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] *= factor * (1 + (i % 2 == 0 ? rounding : -rounding));
  return Tensor::from_values(DType::float32, t.shape(), values);
}

// A projection, then the difference of its result and nearly the same, which no factor makes of it: a
// rounding is an error outside of the tolerance there.
struct Chain : MemoryDump {
  /// @param rounding  of the projection's result, relative, up and down in turn
  /// @param given     a factor of what comes in, which nothing made
  /// @param product   a factor of the projection's result: a fault
  explicit Chain(double rounding, double given = 1, double product = 1) : MemoryDump("d") {
    const Tensor right = normal_tensor(DType::float32, {64, 16}, 3, 100),
                 w = normal_tensor(DType::float32, {64, 16}, 4);
    const Tensor x = scaled(right, given, 0),
                 y = scaled(made("linear", {{"x", x}, {"w", w}}), product, rounding);
    const Tensor near =
        scaled(made("linear", {{"x", right}, {"w", w}}), 1.001, 0x1p-14);  // alike in all dumps
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

constexpr double rounding = 0x1p-23;  // two roundings of float32

TEST(Exemption, AmplifiedRoundingPasses) {
  const Report report = diff(Chain(rounding), Chain(0), by("torch"));
  ASSERT_EQ(last(report).verdict, Verdict::exempt) << everything(report);
  EXPECT_EQ(last(report).exemption->kind, Exemption::Kind::amplified_rounding);
  EXPECT_LE(last(report).exemption->measured, 1);
  EXPECT_THAT(last(report).exemption->source, HasSubstr("sub on its own recorded inputs: error/allowed"));
  EXPECT_GT(last(report).ratio, 1) << "end to end it is outside";
  EXPECT_EQ(report.exit_status(), 0);
  EXPECT_EQ(report.first_failure(), nullptr);
}

TEST(Exemption, IsCountedAndExplainedByEveryReport) {
  const Report report = diff(Chain(rounding), Chain(0), by("torch"));
  const std::int64_t exempt = report.count(Verdict::exempt);
  ASSERT_GT(exempt, 0);
  EXPECT_THAT(report.summary(), HasSubstr(fmt::format("passed, {} exempt, 0 failed", exempt)));
  const auto text = AllOf(HasSubstr("exempt"), HasSubstr("amplified rounding"));
  for (const std::string& written : {to_text(report, {}), to_markdown(report), to_github_annotations(report),
                                     to_csv(report), to_junit(report), to_html(report)})
    EXPECT_THAT(written, text);
  const auto json = nlohmann::json::parse(to_json(report));
  EXPECT_EQ(json["counts"]["exempt"], exempt);
  EXPECT_EQ(json["findings"].back()["verdict"], "exempt");
  EXPECT_EQ(json["findings"].back()["exemption"]["kind"], "amplified_rounding");
  EXPECT_LE(json["findings"].back()["exemption"]["measured"], 1);
  EXPECT_THAT(to_junit(report), testing::Not(HasSubstr("<failure")));
}

TEST(Exemption, WhereBitsAreAskedForThereIsNone) {
  const Report report = diff(Chain(rounding), Chain(0), by("bitwise"));
  EXPECT_EQ(report.count(Verdict::exempt), 0);
  EXPECT_EQ(report.exit_status(), 1);
}

constexpr double within_tolerance = 1 + 1.25e-6;  // torch: 1.3e-6 of the value, in float32

// The product passes end to end, and what follows from it is right by its own inputs; but the product is
// wrong.
TEST(Exemption, NoneStandsBehindAResultThatIsWrongOnItsOwnInputs) {
  const Report report = diff(Chain(0, 1, within_tolerance), Chain(0), by("torch"));
  ASSERT_NE(report.first_failure(), nullptr) << everything(report);
  EXPECT_EQ(report.first_failure()->name, "dense output y (step 0, micro-batch 0, forward)");
  EXPECT_EQ(report.count(Verdict::exempt), 0);
  EXPECT_EQ(last(report).verdict, Verdict::inherited);
}

// Nobody knows whether it is right, and all that follows is right for what it was given.
TEST(Exemption, NoneStandsBehindWhatWasNotJudged) {
  const Report report = diff(Chain(0, within_tolerance), Chain(0), by("torch"));
  EXPECT_EQ(report.count(Verdict::exempt), 0);
  EXPECT_EQ(report.exit_status(), 1);
  EXPECT_EQ(report.first_failure()->verdict, Verdict::undecided);
  EXPECT_THAT(report.first_failure()->origin->root, HasSubstr("dense input x"));
  EXPECT_THAT(report.first_failure()->origin->reason,
              HasSubstr("dense input x (step 0, micro-batch 0, forward) was not judged"));
}

// A module that no operator makes, of inputs that differ by rounding, and what runs after it.
struct Unknown : Chain {
  using Change = std::function<void(std::vector<double>&)>;
  /// @param chosen  of a choice before it that nobody can judge, if not empty
  Unknown(double rounding, const Change& change, const std::vector<std::int64_t>& chosen = {})
      : Chain(rounding) {
    const Tensor x = read(records.size() - 1);
    if (!chosen.empty())
      add({0, 0, Phase::forward, "choose", "output", "index", 0}, Tensor::from_indices({2}, chosen)).op =
          "Mine";
    std::vector<double> values = x.values();
    for (double& v : values) v = 10 + v * v / 10 + 0.3 * std::sin(v);
    change(values);
    const Tensor y = Tensor::from_values(DType::float32, x.shape(), values);
    add({0, 0, Phase::forward, "own", "input", "x", 0}, x).op = "Mine";
    add({0, 0, Phase::forward, "own", "output", "y", 0}, y).op = "Mine";
    add({0, 0, Phase::forward, "after", "input", "x", 0}, y).op = "silu";
    add({0, 0, Phase::forward, "after", "output", "y", 0}, made("silu", {{"x", y}})).op = "silu";
  }
};

void nothing(std::vector<double>&) {}
void add_noise(std::vector<double>& v) {
  for (std::size_t i = 0; i < v.size(); ++i) v[i] *= 1 + 0.03 * std::sin(static_cast<double>(i * i));
}
void double_all(std::vector<double>& v) {
  for (double& x : v) x *= 2;
}
void swap_rows(std::vector<double>& v) {
  std::swap_ranges(v.begin(), v.begin() + 64, v.begin() + 64);
}

Finding result_of(const char* module, const Report& report) {
  return *std::ranges::find_if(
      report.findings, [&](const Finding& f) { return f.id.module == module && f.id.slot == "output"; });
}

TEST(Exemption, WhatNobodyJudgedIsUndecidedUnlessItsCauseIsNoRounding) {
  const auto compare = [&](const Unknown::Change& change) {
    return diff(Unknown(rounding, change), Unknown(0, nothing), by("telechat3"));
  };
  EXPECT_EQ(compare(nothing).exit_status(), 0);

  const Report open = compare(add_noise);
  EXPECT_EQ(open.exit_status(), 1);
  EXPECT_EQ(result_of("own", open).verdict, Verdict::undecided) << everything(open);
  EXPECT_THAT(result_of("own", open).origin->reason,
              HasSubstr("'Mine' is no known operator; an [[operator]] rule names one, or record its parts "
                        "(PyTorch: assay record --functions)"));
  EXPECT_EQ(result_of("after", open).verdict, Verdict::undecided);
  EXPECT_THAT(result_of("after", open).origin->root, HasSubstr("own output y"));
  EXPECT_EQ(open.first_failure()->id.module, "own");

  const Report twice = compare(double_all);
  EXPECT_EQ(result_of("own", twice).verdict, Verdict::failed) << everything(twice);
  ASSERT_FALSE(result_of("own", twice).diagnoses.empty());
  EXPECT_EQ(result_of("own", twice).diagnoses.front().cause, Cause::factor);
  EXPECT_EQ(result_of("after", twice).verdict, Verdict::inherited);
}

// A model whose code between its modules nobody knows: roundings inside of it may grow there.
TEST(Exemption, WhatAnUnknownContainerMakesOfRoundingsInsideIsUndecided) {
  const auto record = [](bool is_rounded, bool is_noisy) {
    return [=](MemoryDump& d, bool is_actual) {
      const Tensor x = normal_tensor(DType::float32, {8, 16}, 1);
      const Tensor inside = normal_tensor(DType::float32, {8, 16}, 2);
      std::vector<double> out = normal_tensor(DType::float32, {8, 16}, 3).values();
      if (is_actual && is_noisy) add_noise(out);
      d.add({0, 0, Phase::forward, "model", "input", "x", 0}, x).op = "Mine";
      d.add({0, 0, Phase::forward, "model.act", "input", "x", 0}, x).op = "silu";
      d.add({0, 0, Phase::forward, "model.act", "output", "y", 0}, output("silu", {{"x", x}}, {}, "y")).op =
          "silu";
      d.add({0, 0, Phase::forward, "model.part", "output", "y", 0},
            is_actual && is_rounded ? noisy(inside, 7) : inside)
          .op = "Part";
      d.add({0, 0, Phase::forward, "model", "output", "y", 0},
            Tensor::from_values(DType::float32, {8, 16}, out))
          .op = "Mine";
    };
  };
  const Report rounded = isolated(record(true, true));
  EXPECT_EQ(result_of("model", rounded).verdict, Verdict::undecided);
  EXPECT_THAT(result_of("model", rounded).origin->reason, HasSubstr("model.part output y"));
  EXPECT_EQ(rounded.exit_status(), 1);
  EXPECT_EQ(result_of("model", isolated(record(false, true))).verdict, Verdict::failed) << "of equal bits";
}

// An expert may take its tokens in another order; but no choice doubles them.
TEST(Exemption, AfterAnUnjudgedChoiceMovedRowsProveNothing) {
  const auto own = [&](const Unknown::Change& change, const std::vector<std::int64_t>& chosen) {
    return result_of("own",
                     diff(Unknown(rounding, change, chosen), Unknown(0, nothing, {0, 1}), by("telechat3")));
  };
  EXPECT_EQ(own(swap_rows, {0, 1}).verdict, Verdict::failed);
  const Finding swapped = own(swap_rows, {1, 0});
  EXPECT_EQ(swapped.verdict, Verdict::undecided);
  ASSERT_FALSE(swapped.diagnoses.empty());
  EXPECT_EQ(swapped.diagnoses.front().cause, Cause::permuted);
  EXPECT_EQ(own(double_all, {1, 0}).verdict, Verdict::failed);
}

// What runs after an exempt result, and cannot be judged itself, is no rounding.
TEST(Exemption, WhatOnlyComesAfterAnExemptResultIsNotExempt) {
  for (const double value : {0.0, 7.0, std::nan("")}) {
    Chain actual(rounding), reference(0);
    const Identity loss{0, 0, Phase::forward, "loss", "output", "loss", 0};
    actual.add(loss, float32({value})).op = "a program's own";
    reference.add(loss, float32({1})).op = "a program's own";
    const Report report = diff(actual, reference, by("torch"));
    EXPECT_EQ(report.exit_status(), 1) << value;
    EXPECT_NE(last(report).verdict, Verdict::exempt);
    EXPECT_EQ(report.first_failure()->name, last(report).name);
  }
}

TEST(Exemption, APartOfTheTensorsExemptsNothing) {
  DiffOptions options = by("torch");
  options.only = "minus output*";
  const Report report = diff(Chain(rounding), Chain(0), options);
  EXPECT_EQ(report.count(Verdict::exempt), 0);
  EXPECT_EQ(report.exit_status(), 1);
}

TEST(Exemption, AllKindsHaveARow) {
  for (const ExemptionRow& row : exemption_rows()) {
    EXPECT_EQ(name(row.kind), row.name);
    EXPECT_FALSE(row.meaning.empty());
  }
}

}  // namespace
}  // namespace assay::exemption_test
