// A replay that is given its weights, its tokens and the choices of its routers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "assay/align/settings/selection.h"
#include "assay/align/step/initial.h"
#include "assay/golden/error.h"
#include "strategy_run.h"

namespace assay::align::given_test {
namespace {

const Batch routed = {.sequences = 2, .length = 16, .is_routed = true};

// Experts that no score has chosen, another choice in every layer and micro-batch: multiples of 5 apart.
Tensor choice(const Model& model, const std::string& module, const MicroBatch& which) {
  const auto layer = static_cast<std::int64_t>(module.size() + static_cast<unsigned char>(module[13]));
  std::vector<std::int64_t> experts;
  for (std::int64_t token = 0; token < routed.tokens(); ++token) {
    for (std::int64_t k = 0; k < model.moe.top_k; ++k)
      experts.push_back((layer + which.number + 7 * token + 5 * k) % model.moe.experts);
  }
  return Tensor::from_indices({routed.tokens(), model.moe.top_k}, experts);
}

StepSettings pinned(const Model& model) {
  StepSettings settings = {.batch = routed, .micro_batches = 4};
  settings.given.routing = [&model](const std::string& module, const MicroBatch& which) {
    return choice(model, module, which);
  };
  return settings;
}

class PinnedRouting : public testing::TestWithParam<const char*> {};

TEST_P(PinnedRouting, GivesTheStepOfASingleDevice) {
  static const Model model = load_model("telechat3-105b-tiny");
  static const StrategyRun single = run_strategy(model, pinned(model), "");
  expect_near_single_device(run_strategy(model, pinned(model), GetParam()), single, 1e-12);
}

INSTANTIATE_TEST_SUITE_P(Strategies, PinnedRouting,
                         testing::Values("cp=2", "tp=2,sp=1,cp=2", "tp=2", "dp=2,ep=2",
                                         "pp=2,recompute=full"));

TEST(Given, RoutingIsAnotherFunction) {
  const Model model = load_model("telechat3-105b-tiny");
  const StrategyRun free = run_strategy(model, {.batch = {2, 16}, .micro_batches = 4}, "");
  EXPECT_NE(run_strategy(model, pinned(model), "").step.loss, free.step.loss);
}

TEST(Given, WeightsAndTokensThatAreTheDrawnOnesChangeNothing) {
  const Model model = load_model("qwen3-moe-tiny");
  const StepSettings drawn = {.batch = {2, 8}, .micro_batches = 2, .seed = 3};
  const StrategyRun expected = run_strategy(model, drawn, "");
  StepSettings settings = {.batch = {2, 8}, .micro_batches = 2};
  settings.given.weights = [&](const std::string& name) {
    return initial_parameter(name, expected.plan.at(name).whole, 3);
  };
  settings.given.sequences = [&](const MicroBatch& which) {
    return initial_sequences(drawn.batch, model.vocabulary, which.number, 3);
  };
  expect_bits_of_single_device(run_strategy(model, settings, ""), expected);
}

class BatchFirst : public testing::TestWithParam<std::pair<const char*, const char*>> {};

// Balance losses by sequence and multi-token prediction, which move rows, among them.
TEST_P(BatchFirst, IsTheSameStepInAnotherOrderOfRows) {
  const auto& [name, parallel] = GetParam();
  const Model model = load_model(name);
  StepSettings settings = {.batch = {.sequences = 3, .length = 8, .prompt = 0.5}, .micro_batches = 2};
  const StrategyRun token_first = run_strategy(model, settings, "");
  settings.batch.batch_first = true;
  expect_near_single_device(run_strategy(model, settings, parallel), token_first, 1e-12);
}

INSTANTIATE_TEST_SUITE_P(Models, BatchFirst,
                         testing::Values(std::pair("qwen3-moe-tiny", ""), std::pair("deepseek-v3-tiny", ""),
                                         std::pair("deepseek-v3-tiny", "tp=2,sp=1"),
                                         std::pair("telechat3-105b-tiny", "dp=2,ep=2")));

TEST(Given, RowsOfWholeSequencesAreNotCut) {
  const Model model = load_model("qwen3-moe-tiny");
  const StepSettings settings = {.batch = {.sequences = 2, .length = 8, .batch_first = true},
                                 .parallel = {.cp = 2}};
  EXPECT_THAT([&] { check(model, settings); },
              testing::ThrowsMessage<Error>(testing::HasSubstr("--batch-first")));
}

TEST(Selection, HasStepsAndPatterns) {
  const Selection selection({"*.mlp.output", "lm_head"}, "0,2-3");
  const Identity output = {.step = 2, .module = "model.layers.1.mlp", .slot = "output", .arg = "y"},
                 input = {.step = 2, .module = "model.layers.1.mlp", .slot = "input", .arg = "y"};
  EXPECT_TRUE(selection.has(output));
  EXPECT_FALSE(selection.has(input));
  std::vector<Record> written(2);
  written[0].id = output;
  written[1].id = input;
  EXPECT_THAT(selection.unmet(written), testing::ElementsAre("lm_head"));
  EXPECT_TRUE(selection.has_step(0) && selection.has_step(3));
  EXPECT_FALSE(selection.has_step(1) || selection.has_step(4));
  for (const char* wrong : {",", "1,", "3-2", "-1", "1-", "a", "1-2-3"})
    EXPECT_THROW(Selection({}, wrong), Error) << wrong;
}

}  // namespace
}  // namespace assay::align::given_test
