// A step against PyTorch's autograd in float64: tests/data/replay/make.py.
#include <algorithm>

#include "assay/align/step.h"
#include "expected.h"

namespace assay::align {
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
  Tape tape = tape_of(model);
  const StepLosses losses = forward(tape, model, batch);
  const auto loss = [&](const Value& v) { return tape.tensor(v).value(0); };
  EXPECT_NEAR(loss(losses.total), want["total"].get<double>(), allowed * loss(losses.total));
  EXPECT_NEAR(loss(losses.cross_entropy), want["losses"]["cross_entropy"].get<double>(), allowed);
  EXPECT_EQ(losses.others.size() + 1, want["losses"].size());
  for (const NamedValue& other : losses.others)
    EXPECT_NEAR(loss(other.value), want["losses"].at(other.name).get<double>(), allowed) << other.name;

  tape.backward(losses.total);
  expect_gradients(tape, want["gradients"]);
}

TEST_P(Step, UpdatesAsPyTorchDoes) {
  const nlohmann::json want = expected("expected.json")[GetParam()];
  Replay replay(load(GetParam()), {.batch = batch});
  const StepResult result = replay.step(nullptr);
  EXPECT_NEAR(result.loss, want["total"].get<double>(), allowed * result.loss);
  EXPECT_NEAR(result.grad_norm, want["norm"].get<double>(), allowed * result.grad_norm);
  EXPECT_EQ(replay.parameters().size(), want["updated"].size());
  for (const auto& [name, p] : replay.parameters())
    expect_sums("gradient of " + name, p.value, want["updated"].at(name));
}

TEST(Replay, TheLossOfAStepIsTheMeanOfItsMicroBatches) {
  const Model model = load_model("qwen3-moe-tiny");
  Replay accumulated(model, {.batch = {1, 12}, .micro_batches = 2});
  const StepResult result = accumulated.step(nullptr);
  double mean = 0;
  for (const std::int64_t number : {0, 1}) {
    Tape tape(Level::fp64, initial_parameter, [&](const std::string& name, const Shape&) {
      return initial_indices(name, {1, 12}, model.vocabulary, number);
    });
    const StepLosses losses = forward(tape, model, {1, 12});
    mean += tape.tensor(losses.total).value(0) / 2;
  }
  EXPECT_NEAR(result.loss, mean, allowed);
  EXPECT_GT(result.grad_norm, 0);
}

TEST(Replay, AStepBehindAnotherGoesOnFromItsState) {
  const Model model = load_model("telechat3-105b-tiny");
  Replay replay(model, {.batch = {1, 16}});
  const double first = replay.step(nullptr).loss, second = replay.step(nullptr).loss;
  EXPECT_NE(first, second);
  Replay again(model, {.batch = {1, 16}});
  EXPECT_EQ(again.step(nullptr).loss, first);
  EXPECT_EQ(again.step(nullptr).loss, second);
  // A bias moves by its rate, at each step.
  const Tensor bias = replay.parameters().at("model.layers.1.mlp.gate.e_score_correction_bias").value;
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
}  // namespace assay::align
