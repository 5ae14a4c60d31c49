// fp16's scale of the loss: when it changes, and what a step does with it.
#include "assay/align/step/loss_scaling.h"

#include <gmock/gmock.h>

#include "assay/align/step/training_step.h"
#include "assay/golden/error.h"

namespace assay::align::loss_scaling_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;

std::vector<double> scales(const LossScaling& settings, const std::vector<bool>& overflows) {
  LossScaler scaler(settings);
  std::vector<double> all;
  for (const bool overflow : overflows) {
    scaler.update(overflow);
    all.push_back(scaler.scale());
  }
  return all;
}

TEST(LossScaler, GrowsBehindAnIntervalOfFiniteSteps) {
  EXPECT_THAT(
      scales({.initial = 8, .interval = 2, .hysteresis = 1}, {false, false, false, true, false, false}),
      ElementsAre(8, 16, 16, 8, 8, 16));
}

// Megatron-LM counts overflows since the scale last grew, and not in a row as its comment says.
TEST(LossScaler, ShrinksWhenItsHysteresisIsUsedUp) {
  EXPECT_THAT(scales({.initial = 8, .interval = 3, .hysteresis = 2},
                     {true, false, true, true, false, false, false, true, true}),
              ElementsAre(8, 8, 4, 2, 2, 2, 4, 4, 2));
}

TEST(LossScaler, DoesNotShrinkBelowTheLeast) {
  EXPECT_THAT(scales({.initial = 2, .least = 1, .hysteresis = 1}, {true, true}), ElementsAre(1, 1));
}

TEST(LossScaler, TakesPowersOfTwoOnly) {
  EXPECT_THAT([] { LossScaler({.initial = 1000}); }, ThrowsMessage<Error>(HasSubstr("1000 is not a power")));
  EXPECT_THAT([] { LossScaler({.backoff = 0}); }, ThrowsMessage<Error>(HasSubstr("0 is not a power")));
}

struct Steps {
  std::vector<StepResult> results;
  std::vector<std::map<std::string, Tensor>> parameters;  ///< before the first step and behind each
};
Steps train(const LossScaling& scaling, int steps, const std::string& parallel = "") {
  const StepSettings settings = {.batch = {1, 8},
                                 .micro_batches = 2,
                                 .precision = Precision::fp16,
                                 .loss_scaling = scaling,
                                 .parallel = parse_parallel(parallel)};
  Steps all;
  run_ranks(static_cast<int>(settings.parallel.ranks()), [&](Communicator& communicator) {
    TrainingStep replay(load_model("qwen3-moe-tiny"), settings, communicator);
    std::vector<std::map<std::string, Tensor>> parameters = {replay.parameters()};
    std::vector<StepResult> results;
    for (int k = 0; k < steps; ++k) {
      results.push_back(replay.step(nullptr));
      parameters.push_back(replay.parameters());
    }
    if (communicator.rank() == 0) all = {results, parameters};
  });
  return all;
}

bool equal(const std::map<std::string, Tensor>& a, const std::map<std::string, Tensor>& b) {
  return std::ranges::equal(
      a, b, [](const auto& x, const auto& y) { return x.second.values() == y.second.values(); });
}

class Overflow : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Strategies, Overflow, testing::Values("", "dp=2", "pp=2"), [](const auto& info) {
  return std::string(info.param).empty() ? std::string("single") : std::string(info.param).substr(0, 2);
});

// 2^40 is beyond float16 for nearly every gradient; behind 32 halvings none is.
TEST_P(Overflow, SkipsTheStepAndHalvesTheScale) {
  const Steps steps = train({.initial = 0x1p40, .backoff = 0x1p-32, .hysteresis = 1}, 2, GetParam());
  EXPECT_TRUE(steps.results[0].skipped);
  EXPECT_EQ(steps.results[0].loss_scale, 0x1p40);
  EXPECT_TRUE(equal(steps.parameters[0], steps.parameters[1]));
  EXPECT_FALSE(steps.results[1].skipped);
  EXPECT_EQ(steps.results[1].loss_scale, 0x1p8);
  EXPECT_FALSE(equal(steps.parameters[1], steps.parameters[2]));
}

// The optimizer's first step is the first that it takes: Adam's correction of its averages counts those.
TEST(LossScaling, ASkippedStepIsNoneForTheOptimizer) {
  constexpr double lr = 1e-3, decay = 0.1;
  const Steps steps = train({.initial = 0x1p40, .backoff = 0x1p-32, .hysteresis = 1}, 2);
  const Tensor &before = steps.parameters[1].at("model.norm.weight"),
               &behind = steps.parameters[2].at("model.norm.weight");
  double largest = 0;
  for (std::int64_t i = 0; i < before.size(); ++i)
    largest = std::max(largest, std::abs(before.value(i) - behind.value(i)));
  // Corrected as in a second step it would be lr (1 - 0.9) / (1 - 0.9^2) / sqrt((1 - 0.95) / (1 - 0.95^2)).
  EXPECT_NEAR(largest, lr, lr * decay);
}

// Powers of two are exact where nothing over- or underflows; 2^8 and 2^10 do neither for most numbers.
TEST(LossScaling, IsTakenOutOfTheGradients) {
  const StepResult one = train({.initial = 0x1p8}, 1).results[0],
                   other = train({.initial = 0x1p10}, 1).results[0];
  EXPECT_EQ(one.loss, other.loss);
  EXPECT_NEAR(one.grad_norm, other.grad_norm, unit_roundoff(DType::float16) * one.grad_norm);
}

}  // namespace
}  // namespace assay::align::loss_scaling_test
