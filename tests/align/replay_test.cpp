// A step against PyTorch's autograd in float64: tests/data/replay/make.py.
#include <algorithm>

#include "assay/align/step/training_step.h"
#include "expected.h"

namespace assay::align::replay_test {
namespace {

Model load(const std::string& name) {
  return load_model(name == "everything" ? ASSAY_TEST_DATA "/models/everything.toml" : name);
}

class Step : public testing::TestWithParam<std::string> {};

TEST_P(Step, GivesTheLossesAndGradientsOfPyTorch) {
  const nlohmann::json all = expected("expected.json");
  ASSERT_TRUE(all.contains(GetParam()));
  const nlohmann::json& want = all[GetParam()];
  const Model model = load(GetParam());
  on_tape(model, batch, 0, [&](Tape& tape) {
    const std::vector<Loss> losses = forward(tape, model, batch, whole(model)).losses;
    EXPECT_NEAR(total(tape, losses), want["total"].get<double>(), allowed * total(tape, losses));
    EXPECT_EQ(losses.size(), want["losses"].size());
    for (const Loss& loss : losses)
      EXPECT_NEAR(tape.tensor(loss.value).value(0), want["losses"].at(loss.name).get<double>(), allowed)
          << loss.name;
    go_back(tape, losses);
    expect_gradients(tape, want["gradients"]);
  });
}

struct Trained {
  std::vector<StepResult> steps;
  std::map<std::string, Tensor> parameters;
};
Trained train(const Model& model, const StepSettings& settings, int steps = 1) {
  Trained result;
  run_ranks(1, [&](Communicator& alone) {
    TrainingStep replay(model, settings, alone);
    for (int k = 0; k < steps; ++k) result.steps.push_back(replay.step(nullptr));
    result.parameters = replay.parameters();
  });
  return result;
}

TEST_P(Step, UpdatesAsPyTorchDoes) {
  const nlohmann::json want = expected("expected.json")[GetParam()];
  const Trained trained = train(load(GetParam()), {.batch = batch});
  const StepResult& result = trained.steps.front();
  EXPECT_NEAR(result.loss, want["total"].get<double>(), allowed * result.loss);
  EXPECT_NEAR(result.grad_norm, want["norm"].get<double>(), allowed * result.grad_norm);
  EXPECT_EQ(trained.parameters.size(), want["updated"].size());
  for (const auto& [name, value] : trained.parameters)
    expect_sums("gradient of " + name, value, want["updated"].at(name));
}

TEST(Replay, TheLossOfAStepIsTheMeanOfItsMicroBatches) {
  const Model model = load_model("qwen3-moe-tiny");
  const StepResult result = train(model, {.batch = {1, 12}, .micro_batches = 2}).steps.front();
  double mean = 0;
  for (const std::int64_t number : {0, 1}) {
    on_tape(model, {1, 12}, number, [&](Tape& tape) {
      mean += total(tape, forward(tape, model, {1, 12}, whole(model)).losses) / 2;
    });
  }
  EXPECT_NEAR(result.loss, mean, allowed);
  EXPECT_GT(result.grad_norm, 0);
}

TEST(Replay, AStepBehindAnotherGoesOnFromItsState) {
  const Model model = load_model("telechat3-105b-tiny");
  const Trained two = train(model, {.batch = {1, 16}}, 2), again = train(model, {.batch = {1, 16}}, 2);
  EXPECT_NE(two.steps[0].loss, two.steps[1].loss);
  EXPECT_EQ(again.steps[0].loss, two.steps[0].loss);
  EXPECT_EQ(again.steps[1].loss, two.steps[1].loss);
  // A bias moves by its rate, at each step.
  const Tensor& bias = two.parameters.at("model.layers.1.mlp.gate.e_score_correction_bias");
  const Tensor initial = initial_parameter("model.layers.1.mlp.gate.e_score_correction_bias", bias.shape());
  for (std::int64_t e = 0; e < bias.size(); ++e)
    EXPECT_LE(std::abs(bias.value(e) - initial.value(e)), 2 * model.moe.bias_rate * (1 + 1e-12));
}

INSTANTIATE_TEST_SUITE_P(Presets, Step,
                         testing::Values("deepseek-v3-tiny", "everything", "pangu-ultra-moe-tiny",
                                         "qwen3-moe-tiny", "telechat3-105b-tiny", "telechat3-1119b-tiny",
                                         "telechat3-438b-tiny"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace assay::align::replay_test
