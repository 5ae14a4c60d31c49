// Muon, and losses averaged over tokens, under parallel strategies against the single device (facts E).
#include "single_device.h"

namespace assay::align {
namespace {

const Model& model() {
  static const Model loaded = load_model("telechat3-105b-tiny");
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
  static const Result single = run(model(), of_muon(), "");
  expect_single_device(run(model(), of_muon(), GetParam()), single);
}
INSTANTIATE_TEST_SUITE_P(Facts, MuonUnder,
                         testing::Values("tp=2", "dp=2,ep=2", "tp=2,etp=2", "dp=2,etp=2", "dp=2,zero=1",
                                         "dp=2,zero=2", "dp=2,zero=3", "tp=2,sp=1,dp=2,etp=2,ep=2,zero=3",
                                         "pp=2"),
                         [](const auto& info) { return test_name(info.param); });

class TokensUnder : public testing::TestWithParam<const char*> {};
TEST_P(TokensUnder, GivesTheStepOfASingleDevice) {
  static const Result single = run(model(), over_tokens(), "");
  expect_single_device(run(model(), over_tokens(), GetParam()), single);
}
INSTANTIATE_TEST_SUITE_P(Facts, TokensUnder,
                         testing::Values("dp=2", "dp=4,zero=1", "cp=2", "cp=2,context=ulysses", "pp=2",
                                         "tp=2,sp=1", "dp=2,cp=2,zero=3", "dp=2,ep=2"),
                         [](const auto& info) { return test_name(info.param); });

double farthest(const Result& actual, const Result& single, const std::string& name) {
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
  const Result single = run(model(), blockwise, "");
  EXPECT_EQ(farthest(single, run(model(), of_muon(), ""), name), 0);
  EXPECT_GT(farthest(run(model(), blockwise, "tp=2"), single, name), 1e-4);
}

}  // namespace
}  // namespace assay::align
