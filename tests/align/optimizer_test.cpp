// Optimizers and averages of losses against PyTorch in float64: tests/data/replay/make_training.py.
#include "assay/align/step/optimizer.h"

#include <algorithm>

#include "assay/align/step/training_step.h"
#include "expected.h"

namespace assay::align::optimizer_test {
namespace {

const nlohmann::json& training() {
  static const nlohmann::json all = expected("training.json");
  return all;
}

struct Learnt {
  Tensor value;
  OptimizerState state;
};

Learnt initially(const OptimizerSettings& o, const std::string& name, const Shape& shape) {
  return {initial_parameter(name, shape), initial_state(by_muon(o, name, shape), DType::float64, shape)};
}

void take_step(const OptimizerSettings& o, const std::string& name, std::int64_t step, Learnt& p) {
  const Shape& shape = p.value.shape();
  const std::vector<double> values =
      drawn("gradient " + std::to_string(step + 1) + " of " + name, p.value.size());
  const Tensor gradient(shape, std::span<const double>(values));
  const Current current = {p.value, p.state, gradient, decays(o, name, shape)};
  const auto in = arithmetic(Precision::fp64);
  const Update next = by_muon(o, name, shape) ? muon(*in, o, current) : adam(*in, o, step, current);
  p = {next.value, next.state};
}

class Optimizer : public testing::TestWithParam<std::string> {};

TEST_P(Optimizer, UpdatesAsPyTorchDoes) {
  const nlohmann::json& want = training()["optimizers"][GetParam()];
  const OptimizerSettings settings = parse_optimizer(GetParam());
  const std::vector<std::pair<std::string, Shape>> parameters = {
      {"model.embed_tokens.weight", {7, 4}},
      {"model.norm.weight", {4}},
      {"model.layers.0.self_attn.o_proj.weight", {4, 6}},
      {"model.layers.0.self_attn.q_proj.weight", {9, 4}},
      {"model.layers.1.mlp.gate.weight", {3, 4}},
      {"model.layers.1.mlp.experts.*.up_proj.weight", {3, 5, 4}},
      {"lm_head.weight", {7, 4}}};
  ASSERT_EQ(want.size(), parameters.size());
  for (const auto& [name, shape] : parameters) {
    Learnt parameter = initially(settings, name, shape);
    for (const std::int64_t step : {0, 1, 2}) take_step(settings, name, step, parameter);
    expect_sums("gradient of " + name, parameter.value, want.at(name));
  }
}

std::string test_name(std::string text) {
  std::ranges::replace_if(
      text, [](char c) { return !std::isalnum(static_cast<unsigned char>(c)); }, '_');
  return text;
}

INSTANTIATE_TEST_SUITE_P(Facts, Optimizer,
                         testing::Values("adamw", "adam-l2", "torch-adamw", "torch-adam",
                                         "torch-adamw,beta2=0.95,eps=0.1,weight_decay=0.1,decay=matrices",
                                         "mindspore-adamw", "eps-hat,eps=0.1", "muon", "muon,muon_routers=0"),
                         [](const auto& info) { return test_name(info.param); });

class AverageOver : public testing::TestWithParam<LossAverage> {};

TEST_P(AverageOver, RaggedMicroBatchesTrainsAsPyTorchDoes) {
  const nlohmann::json& want =
      training()["averages"][GetParam() == LossAverage::tokens ? "tokens" : "micro_batches"];
  StepSettings settings = {.batch = {batch.sequences, batch.length, 1},
                           .micro_batches = 2,
                           .optimizer = parse_optimizer("muon"),
                           .loss_average = GetParam()};
  run_ranks(1, [&](Communicator& alone) {
    TrainingStep replay(load_model(ASSAY_TEST_DATA "/models/everything.toml"), settings, alone);
    const StepResult result = replay.step(nullptr);
    EXPECT_NEAR(result.loss, want["total"].get<double>(), allowed * result.loss);
    EXPECT_NEAR(result.grad_norm, want["norm"].get<double>(), allowed * result.grad_norm);
    const auto parameters = replay.parameters();
    EXPECT_EQ(parameters.size(), want["updated"].size());
    for (const auto& [name, value] : parameters)
      expect_sums("gradient of " + name, value, want["updated"].at(name));
  });
}

INSTANTIATE_TEST_SUITE_P(Facts, AverageOver, testing::Values(LossAverage::micro_batches, LossAverage::tokens),
                         [](const auto& info) {
                           return info.param == LossAverage::tokens ? "tokens" : "micro_batches";
                         });

TEST(Average, OfAStepIsOverItsOwnTargets) {
  const Model model = load_model("qwen3-moe-tiny");
  const StepSettings settings = {.batch = {2, 12, 1},
                                 .micro_batches = 2,
                                 .optimizer = parse_optimizer("adamw,lr=0"),
                                 .loss_average = LossAverage::tokens};
  const auto targets = [&](std::int64_t number) {
    return initial_indices("valid_targets", settings.batch, model.vocabulary, number).indices().front();
  };
  ASSERT_NE(targets(0) + targets(1), targets(2) + targets(3));
  const LossShares shares(LossAverage::tokens, settings.batch.tokens(), {targets(2), targets(3)});
  double second = 0;
  for (const std::int64_t k : {0, 1}) {
    on_tape(model, settings.batch, 2 + k, [&](Tape& tape) {
      for (const Loss& loss : forward(tape, model, settings.batch, whole(model)).losses)
        second += shares.of(loss, k) * loss.weight * tape.tensor(loss.value).value(0);
    });
  }
  run_ranks(1, [&](Communicator& alone) {
    TrainingStep replay(model, settings, alone);
    replay.step(nullptr);
    EXPECT_NEAR(replay.step(nullptr).loss, second, allowed * second);
  });
}

}  // namespace
}  // namespace assay::align::optimizer_test
