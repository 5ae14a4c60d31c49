// Programs that scale their losses otherwise and take it back in the gradients of parameters.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "assay/operators/engine/golden.h"
#include "isolated.h"

namespace assay::scale_convention_test {
namespace {

constexpr auto f = Phase::forward, b = Phase::backward;

// What a run multiplies its losses by and the sums of its parameters' gradients, a gradient that it does not
// scale, and a micro-batch of other tokens.
struct Scales {
  double loss = 1, sums = 1;
  bool forgets_one = false;
  std::int64_t other_tokens = -1;  // the micro-batch that has them
};

// Two linear layers, whose gradients are those of a loss that nobody recorded.
auto run(const Scales& actual, const Scales& reference, DType dtype = DType::float32, double size = 1) {
  return [=](MemoryDump& d, bool is_actual) {
    const Scales& own = is_actual ? actual : reference;
    const auto stored = [&](const Tensor& t, double scale, std::uint64_t seed) {
      Values values = t.values();
      for (double& v : values) v *= scale;
      return noisy(Tensor::from_values(dtype, t.shape(), values), seed + (is_actual ? 1 : 0));
    };
    for (const std::string layer : {"up", "down"}) {
      const Tensor w = normal_tensor(dtype, {5, 6}, layer.size());
      Values sum(30, 0);
      d.add({0, -1, f, layer, "param", "weight", 0}, w);
      for (const std::int64_t mb : {0, 1, 2}) {
        const auto seed = 10 * static_cast<std::uint64_t>(mb) + layer.size();
        const Tensor x = normal_tensor(dtype, {8, 6}, 100 + seed),
                     g = stored(
                         normal_tensor(dtype, {8, 5}, (mb == own.other_tokens ? 900 : 200) + seed, size),
                         own.loss, 2 * seed);
        const auto made =
            compute_golden(find_operator("linear"),
                           std::vector<NamedTensor>{{"x", x}, {"w", w}, {"grad_y", g}}, {}, Level::fp64);
        const bool forgets = own.forgets_one && mb == 1 && layer == "up";
        d.add({0, mb, f, layer, "input", "input", 0}, x).op = "Linear";
        d.add({0, mb, f, layer, "output", "y", 0}, stored(output_named(made, "y"), 1, seed)).op = "Linear";
        d.add({0, mb, b, layer, "grad_output", "y", 0}, g).op = "Linear";
        d.add({0, mb, b, layer, "grad_input", "input", 0},
              stored(output_named(made, "grad_x"), forgets ? 1 / own.loss : 1, seed))
            .op = "Linear";
        const std::vector<double> part = output_named(made, "grad_w").values();
        for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += part[i];
      }
      d.add({0, -1, b, layer, "grad", "weight", 0},
            stored(Tensor::from_values(DType::float64, {5, 6}, sum), own.sums, 7));
    }
  };
}

std::int64_t by_convention(const Report& report) {
  return std::ranges::count_if(report.findings, [](const Finding& x) {
    return x.exemption && x.exemption->kind == Exemption::Kind::scale_by_convention;
  });
}

TEST(ScaleConvention, WhatComesBackInTheParametersGradientsIsExempt) {
  for (const DType dtype : {DType::float32, DType::bfloat16}) {
    for (const double factor : {2.0, 0.25, 3.0}) {
      const Report report = isolated(run({factor, 1 / factor}, {}, dtype));
      EXPECT_EQ(report.exit_status(), 0) << factor;
      EXPECT_EQ(by_convention(report), 12)
          << factor << ": two gradients of two layers in three micro-batches";
      ASSERT_EQ(report.notes.size(), 1u);
      EXPECT_TRUE(report.notes.front().starts_with("scale by convention")) << report.notes.front();
    }
  }
}

// All of them are within the tolerance, whatever their factor is; sums that are made of them are judged by
// it.
TEST(ScaleConvention, IsKnownOfGradientsThatAreTooSmallToFail) {
  const Report report = isolated(run({2, 0.5}, {}, DType::bfloat16, 1e-4));
  EXPECT_EQ(report.exit_status(), 0);
  EXPECT_EQ(created(report), std::vector<std::string>());
  ASSERT_FALSE(report.notes.empty());
  EXPECT_TRUE(report.notes.front().starts_with("scale by convention")) << report.notes.front();
}

TEST(ScaleConvention, OtherTokensOfAMicroBatchSayNothingOfIt) {
  EXPECT_EQ(by_convention(isolated(run({2, 0.5, false, 1}, {}))), 8) << "two of three micro-batches";
}

TEST(ScaleConvention, WhatDoesNotComeBackIsNone) {
  const Report report = isolated(run({2, 1}, {}));
  EXPECT_EQ(report.exit_status(), 1);
  EXPECT_EQ(by_convention(report), 0);
}

TEST(ScaleConvention, AGradientThatIsNotScaledLikeTheOthersFails) {
  const Report report = isolated(run({2, 0.5, true}, {}));
  EXPECT_EQ(report.exit_status(), 1);
  EXPECT_EQ(created(report), std::vector<std::string>{"up grad_input input"})
      << "it is the reference's, bit for bit but for rounding";
}

// A model's loss, and another that is added to it and is halved: in which backward begins.
TEST(ScaleConvention, APartOfTheLossIsNone) {
  const Report report = isolated([](MemoryDump& d, bool is_actual) {
    for (const std::int64_t mb : {0, 1}) {
      for (const char* module : {"extra", "head", "norm", "embed"}) {
        const Tensor g = normal_tensor(DType::float32, {8, 5}, 17 * static_cast<std::uint64_t>(mb) + *module);
        const bool is_halved = is_actual && std::string(module) == "extra";
        d.add({0, mb, b, module, "grad_output", "y", 0}, is_halved ? plus(g, -0.5, g) : g);
      }
    }
    for (const char* module : {"head", "norm", "embed"})
      d.add({0, -1, b, module, "grad", "weight", 0}, normal_tensor(DType::float32, {8}, *module));
  });
  EXPECT_EQ(by_convention(report), 0);
  EXPECT_EQ(report.first_failure()->id.module, "extra");
}

TEST(ScaleConvention, WhereBothSidesAverageASumIsAFault) {
  const Scales average = {1, 0.5};
  const Report right = isolated(run(average, average));
  EXPECT_EQ(right.exit_status(), 0);
  for (const Finding& x : right.findings) EXPECT_TRUE(x.id.slot != "grad" || x.unjudged.empty()) << x.name;
  EXPECT_EQ(created(isolated(run({1, 1}, average))),
            (std::vector<std::string>{"up grad weight", "down grad weight"}));
}

// The loss of each micro-batch as the program writes it down, and how many of its places have a target.
auto with_losses(const Scales& actual, const std::vector<double>& factors,
                 const std::vector<std::int64_t>& counted = {8, 8, 8}) {
  return [=](MemoryDump& d, bool is_actual) {
    run(actual, {})(d, is_actual);
    for (std::size_t mb = 0; mb < factors.size(); ++mb) {
      const auto number = static_cast<std::int64_t>(mb);
      std::vector<std::int64_t> labels;
      for (std::int64_t i = 0; i < 8; ++i) labels.push_back(i < counted[mb] ? 3 + i : -100);
      d.add({0, number, f, "", "input", "labels", 0}, Tensor::from_indices({1, 8}, labels));
      const double loss = 4.25 + 0.3 * static_cast<double>(mb), rounding = 1 + 1e-6;
      d.add(
          {0, number, f, "loss", "loss", "lm", 0},
          Tensor::from_values(DType::float32, {}, Values{is_actual ? loss * factors[mb] * rounding : loss}));
    }
  };
}

void expect_by_convention(const Report& report, const std::string& text) {
  EXPECT_EQ(report.exit_status(), 0) << text;
  EXPECT_EQ(by_convention(report), 3) << text;
  ASSERT_FALSE(report.notes.empty()) << text;
  EXPECT_NE(report.notes.back().find(text), std::string::npos) << report.notes.back();
}

TEST(ScaleConvention, ALossMayBeTheShareOfAMicroBatchWhereNoGradientIsScaled) {
  constexpr double third = 1. / 3;
  expect_by_convention(isolated(with_losses({}, {third, third, third})), "0.333333 = 1/micro-batches");
  // Or 8 tokens' sum, of which the first is foreseen by nothing.
  expect_by_convention(isolated(with_losses({}, {7, 7, 7})), "7 = tokens");
}

TEST(ScaleConvention, TokensAreThoseOfTheMicroBatch) {
  expect_by_convention(isolated(with_losses({}, {8, 4, 6}, {8, 4, 6})), "are scaled by tokens, and");
  expect_by_convention(isolated(with_losses({}, {8. / 18, 4. / 18, 6. / 18}, {8, 4, 6})),
                       "are scaled by tokens/tokens of the step, and");
}

TEST(ScaleConvention, OfALossThatIsScaledOtherwiseThanGradients) {
  const Report report = isolated(with_losses({2, 0.5}, {7, 7, 7}));
  EXPECT_EQ(report.exit_status(), 0);
  EXPECT_EQ(by_convention(report), 12 + 3);
}

TEST(ScaleConvention, ALossOfAnotherFactorOrOfOneMicroBatchFails) {
  for (const std::vector<double>& factors :
       {std::vector<double>{0.3, 0.3, 0.3}, {1, 1. / 3, 1. / 3}, {8, 8, 8.1}}) {
    const Report report = isolated(with_losses({}, factors));
    EXPECT_EQ(report.exit_status(), 1) << factors.front();
    EXPECT_EQ(by_convention(report), 0) << factors.front();
  }
}

// The mean of means over micro-batches with other numbers of tokens: gradients have the factor, too.
TEST(ScaleConvention, ALossWhoseGradientsHaveItsFactorFails) {
  const Report report = isolated(with_losses({1. / 3, 1}, {1. / 3, 1. / 3, 1. / 3}));
  EXPECT_EQ(report.exit_status(), 1);
  EXPECT_EQ(by_convention(report), 0);
  const Finding& loss = finding(report, "loss", "loss");
  ASSERT_FALSE(loss.diagnoses.empty());
  EXPECT_EQ(loss.diagnoses.front().cause, Cause::factor);
  EXPECT_EQ(loss.diagnoses.front().parameters.factor_names, std::vector<std::string>{"1/micro-batches"});
}

}  // namespace
}  // namespace assay::scale_convention_test
