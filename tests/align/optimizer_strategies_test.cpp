// Muon, and losses averaged over tokens, under parallel strategies against the single device
// (docs/semantics.md E).
#include <gtest/gtest.h>

#include <algorithm>

#include "strategy_run.h"

namespace assay::align::optimizer_strategies_test {
namespace {

// float64: a few hundred sums of some hundred terms in another order.
constexpr double allowed = 1e-12;

std::string test_name(std::string text) {
  std::ranges::replace_if(
      text, [](char c) { return !std::isalnum(static_cast<unsigned char>(c)); }, '_');
  return text;
}

const Model& model() {
  static const Model loaded = load_model(ASSAY_TEST_DATA "/models/latent.toml");
  return loaded;
}

StepSettings of_muon(const std::string& optimizer = "muon") {
  return {.batch = {1, 16}, .micro_batches = 2, .optimizer = parse_optimizer(optimizer)};
}

StepSettings over_tokens() {
  return {.batch = {2, 16, 0.9}, .micro_batches = 4, .loss_average = LossAverage::tokens};
}

class MuonUnder : public testing::TestWithParam<const char*> {};
TEST_P(MuonUnder, GivesTheStepOfASingleDevice) {
  static const StrategyRun single = run_strategy(model(), of_muon(), "");
  expect_near_single_device(run_strategy(model(), of_muon(), GetParam()), single, allowed);
}
INSTANTIATE_TEST_SUITE_P(Facts, MuonUnder,
                         testing::Values("tp=2", "dp=2,ep=2", "tp=2,etp=2", "dp=2,etp=2", "dp=2,zero=1",
                                         "dp=2,zero=2", "dp=2,zero=3", "tp=2,sp=1,dp=2,etp=2,ep=2,zero=3",
                                         "pp=2"),
                         [](const auto& info) { return test_name(info.param); });

class TokensUnder : public testing::TestWithParam<const char*> {};
TEST_P(TokensUnder, GivesTheStepOfASingleDevice) {
  static const StrategyRun single = run_strategy(model(), over_tokens(), "");
  expect_near_single_device(run_strategy(model(), over_tokens(), GetParam()), single, allowed);
}
INSTANTIATE_TEST_SUITE_P(Facts, TokensUnder,
                         testing::Values("dp=2", "dp=4,zero=1", "cp=2", "cp=2,context=ulysses", "pp=2",
                                         "tp=2,sp=1", "dp=2,cp=2,zero=3", "dp=2,ep=2"),
                         [](const auto& info) { return test_name(info.param); });

// Facts E: nothing that Muon and the average add is summed in another order.
TEST(ExactArithmetic, MuonOverTokensGivesTheBitsOfASingleDevice) {
  const Model latent = load_model(ASSAY_TEST_DATA "/models/latent.toml");
  const StepSettings settings = {.batch = {2, 8, 1},
                                 .micro_batches = 4,
                                 .precision = Precision::exact,
                                 .optimizer = parse_optimizer("muon"),
                                 .loss_average = LossAverage::tokens};
  const StrategyRun single = run_strategy(latent, settings, "");
  for (const char* const strategy :
       {"tp=2", "tp=2,sp=1,dp=2,zero=2", "dp=2,zero=1", "dp=2,zero=3", "dp=2,ep=2", "dp=2,etp=2", "pp=2"}) {
    SCOPED_TRACE(strategy);
    expect_bits_of_single_device(run_strategy(latent, settings, strategy), single);
  }
}

double farthest(const StrategyRun& actual, const StrategyRun& single, const std::string& name) {
  const std::vector<double> a = actual.parameters.front().at(name).values(),
                            b = single.parameters.front().at(name).values();
  double worst = 0;
  for (std::size_t i = 0; i < a.size(); ++i) worst = std::max(worst, std::abs(a[i] - b[i]));
  return worst;
}

// Rows: rank 0 has the first ones.
TEST(Muon, OfTheBlocksOfAMatrixIsAnotherFunction) {
  const std::string name = "model.layers.0.self_attn.q_b_proj.weight";
  const StepSettings blockwise = of_muon("muon,matrix=blockwise");
  const StrategyRun single = run_strategy(model(), blockwise, "");
  EXPECT_EQ(farthest(single, run_strategy(model(), of_muon(), ""), name), 0);
  EXPECT_GT(farthest(run_strategy(model(), blockwise, "tp=2"), single, name), 1e-4);
}

}  // namespace
}  // namespace assay::align::optimizer_strategies_test
