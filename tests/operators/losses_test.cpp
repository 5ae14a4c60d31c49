#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "assay/operators/engine/fitted_logits.h"
#include "calls.h"

// Losses over classes and norms: infinities, zeros, small losses, and what is shared between operators.
namespace assay::losses_test {
namespace {

using testing::ElementsAre;
using testing::IsNan;
using Inputs = std::vector<NamedTensor>;

TEST(LogSumExp, InfinitiesAsTorch) {
  const auto y = [](std::vector<double> x) { return output("logsumexp", "y", {values("x", x)}).value(0); };
  EXPECT_EQ(y({-infinity, -infinity}), -infinity);
  EXPECT_EQ(y({infinity, -infinity, 1}), infinity);
  EXPECT_EQ(y({-infinity, 2}), 2);
  EXPECT_TRUE(std::isnan(y({infinity, std::nan("")})));
  EXPECT_TRUE(std::isnan(y({std::nan(""), 1})));
  EXPECT_EQ(y({}), -infinity);
  EXPECT_EQ(y({1e300, 0}), 1e300);
  EXPECT_DOUBLE_EQ(y({0, -50}), std::exp(-50));
}

TEST(L2Norm, HasNoGradientAtZero) {
  const auto x = values("x", {2, 2}, {3, -4, 0, 0}), g = values("grad_y", {2}, {1, infinity});
  EXPECT_THAT(output("l2_norm", "y", {x}, "dim=-1").values(), ElementsAre(5, 0));
  EXPECT_THAT(output("l2_norm", "grad_x", {x, g}, "dim=-1").values(), ElementsAre(.6, -.8, 0, 0));
}

TEST(NllLoss, MeanOverTheTargetsThatCount) {
  const auto x = values("log_probs", {3, 2}, {-1, -2, -3, -4, -5, -6});
  EXPECT_THAT(output("nll_loss", "loss", {x, indices("target", {3}, {0, 1, -100})}).values(),
              ElementsAre(2.5));
  EXPECT_THAT(
      output("nll_loss", "loss", {x, indices("target", {3}, {0, 1, 1}), values("weight", {2}, {3, 1})})
          .values(),
      ElementsAre((3. + 4 + 6) / 5));
  EXPECT_THAT(output("nll_loss", "loss", {x, indices("target", {3}, {-100, -100, -100})}).values(),
              ElementsAre(IsNan()));
  EXPECT_THAT(output("nll_loss", "grad_log_probs", {x, indices("target", {3}, {0, 1, -100})}).values(),
              ElementsAre(-.5, 0, 0, -.5, 0, 0));
  expect_error({"nll_loss", {x, indices("target", {3}, {0, 1, 2})}, "", "0 <= index < V = 2"});
  expect_error(
      {"nll_loss", {x, indices("target", {3}, {0, 1, 1})}, "reduction=\"max\"", "mean, sum or none"});
}

TEST(CrossEntropy, OneHotProbabilitiesAreTheirIndices) {
  const auto logits = values("logits", {2, 3}, {1, 5, -2, 40, 0, 1}), g = values("grad_y", {}, {1});
  const auto one_hot = values("target_probs", {2, 3}, {0, 1, 0, 1, 0, 0});
  for (const char* attributes : {"", "label_smoothing=0.25,reduction=\"sum\""}) {
    for (const char* name : {"loss", "grad_logits"}) {
      const auto dense = output("cross_entropy", name, {logits, one_hot, g}, attributes).values();
      const auto sparse =
          output("cross_entropy", name, {logits, indices("target", {2}, {1, 0}), g}, attributes).values();
      for (std::size_t i = 0; i < dense.size(); ++i) EXPECT_NEAR(dense[i] / sparse[i], 1, 1e-14) << name;
    }
  }
  expect_error({"cross_entropy", {logits}, "", "either target"});
  expect_error({"cross_entropy", {logits, one_hot}, "softcap=-1", "softcap is -1"});
  expect_error({"cross_entropy", {logits, one_hot, indices("target", {2}, {1, 0})}, "", "either target"});
}

// Rows of logits and their gradient, as a kernel stores them that is told what the model does before.
Inputs logits_and_gradient(DType dtype, std::string_view attributes) {
  const std::int64_t tokens = 16, classes = 64;
  std::vector<double> x;
  std::vector<std::int64_t> target;
  for (std::int64_t i = 0; i < tokens * classes; ++i)
    x.push_back(4 * std::sin(1.7 * static_cast<double>(i * i)));
  for (std::int64_t n = 0; n < tokens; ++n) target.push_back(n == 3 ? -100 : 5 * n % classes);
  const NamedTensor logits = {"logits", Tensor::from_values(dtype, {tokens, classes}, x)};
  const Tensor gradient =
      output("cross_entropy", "grad_logits",
             {logits, indices("target", {tokens}, target), values("grad_y", {}, {-0.5})}, attributes);
  return {logits, {"grad_logits", Tensor::from_values(dtype, gradient.shape(), gradient.values())}};
}

TEST(FittedLogits, AGradientShowsTheScaleOrTheCap) {
  for (const DType dtype : {DType::bfloat16, DType::float32}) {
    for (const auto& [name, value] : {std::pair("logit_scale", 0.0625),
                                      {"logit_scale", 1. / 6},
                                      {"logit_scale", 1.3},
                                      {"softcap", 30.},
                                      {"softcap", 2.5}}) {
      const Inputs made = logits_and_gradient(dtype, fmt::format("{}={}", name, value));
      const std::vector<Candidate> all = fitted_logits(made[0].tensor, made[1].tensor);
      ASSERT_FALSE(all.empty()) << name << value;
      EXPECT_EQ(all.front().attributes.values().begin()->first, name);
      EXPECT_EQ(all.front().attributes.real(name), value) << assay::name(dtype);
    }
    const Inputs plain = logits_and_gradient(dtype, "");
    EXPECT_TRUE(fitted_logits(plain[0].tensor, plain[1].tensor).empty());
  }
}

TEST(FittedLogits, NothingIsToldWithoutGradients) {
  const Tensor x = Tensor::from_values(DType::float32, {2, 3}, std::vector<double>{1, 2, 3, 4, 5, 6}),
               no(DType::float32, {2, 3});
  EXPECT_TRUE(fitted_logits(x, no).empty());
  EXPECT_TRUE(fitted_logits(Tensor(DType::float32, {0, 3}), Tensor(DType::float32, {0, 3})).empty());
  EXPECT_TRUE(fitted_logits(x, Tensor(DType::float32, {3, 2})).empty());
}

// The same loss, however many ranks share the vocabulary, smoothed or not.
TEST(VocabParallelCrossEntropy, DoesNotDependOnTheRanks) {
  const auto logits = values("logits", {2, 4}, {1, 3, -2, 0, 50, 0, 0, 0}), g = values("grad_y", {2}, {1, 1});
  const Inputs inputs = {logits, indices("target", {2}, {2, 0}), g};
  const auto loss = output("vocab_parallel_cross_entropy", "loss", inputs).values();
  const auto whole = output("cross_entropy", "loss", inputs, "reduction=\"none\"").values();
  EXPECT_THAT(loss, ElementsAre(whole[0], whole[1]));
  EXPECT_DOUBLE_EQ(loss[1], 3 * std::exp(-50));
  EXPECT_DOUBLE_EQ(output("vocab_parallel_cross_entropy", "grad_logits", inputs).value(4),
                   -3 * std::exp(-50));
  for (const char* name : {"loss", "grad_logits"}) {
    const auto one = output("vocab_parallel_cross_entropy", name, inputs, "label_smoothing=0.25").values();
    EXPECT_EQ(output("vocab_parallel_cross_entropy", name, inputs, "label_smoothing=0.25,tp=2").values(),
              one);
  }
  // Smoothing over all V classes with s V / (V - 1) is that over the V - 1 others with s.
  const auto smoothed =
      output("cross_entropy", "loss", inputs, "reduction=\"none\",label_smoothing=0.25").values();
  const double same =
      output("vocab_parallel_cross_entropy", "loss", inputs, "label_smoothing=0.1875").value(0);
  EXPECT_DOUBLE_EQ(same, smoothed[0]);
}

TEST(VocabParallelCrossEntropy, ATargetOnNoRankHasNoLogit) {
  const auto logits = values("logits", {1, 2}, {0, 0}), g = values("grad_y", {1}, {1});
  for (const std::int64_t target : {-1, 2}) {
    EXPECT_THAT(
        output("vocab_parallel_cross_entropy", "loss", {logits, indices("target", {1}, {target})}).values(),
        ElementsAre(std::log(2)));
    EXPECT_THAT(
        output("vocab_parallel_cross_entropy", "grad_logits", {logits, indices("target", {1}, {target}), g})
            .values(),
        ElementsAre(.5, .5));
  }
  for (const char* wrong : {"tp=3", "tp=0", "label_smoothing=1", "label_smoothing=-0.1"}) {
    expect_error({"vocab_parallel_cross_entropy", {logits, indices("target", {1}, {0})}, wrong, "expected"});
  }
}

TEST(GroupNorm, NeedsGroupsOfEqualSize) {
  const auto x = values("x", {1, 4}, {1, 3, 10, 30});
  EXPECT_THAT(output("group_norm", "mean", {x}, "num_groups=2").values(), ElementsAre(2, 20));
  EXPECT_THAT(output("group_norm", "y", {x}, "num_groups=2,eps=0").values(), ElementsAre(-1, 1, -1, 1));
  expect_error({"group_norm", {x}, "num_groups=3", "a divisor of the 4 channels"});
  expect_error({"group_norm", {x}, "num_groups=0", "a divisor of the 4 channels"});
  expect_error({"group_norm", {values("x", {4}, {1, 2, 3, 4})}, "", "'x' has shape [4]; expected [N,C,D*]"});
}

}  // namespace
}  // namespace assay::losses_test
