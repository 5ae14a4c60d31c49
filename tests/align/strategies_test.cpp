// Every parallel strategy against the single device (docs/semantics.md E).
#include <gtest/gtest.h>

#include <algorithm>

#include "strategy_run.h"

namespace assay::align::strategies_test {
namespace {

// float64: a few hundred sums of some hundred terms in another order.
constexpr double allowed = 1e-12;

class Strategy : public testing::TestWithParam<const char*> {};

TEST_P(Strategy, GivesTheStepOfASingleDevice) {
  const Model model = load_model(ASSAY_TEST_DATA "/models/latent.toml");
  const StepSettings settings = {.batch = {2, 8}, .micro_batches = 8};
  static const StrategyRun single = run_strategy(model, settings, "");
  expect_near_single_device(run_strategy(model, settings, GetParam()), single, allowed);
}

TEST(Strategies, ARankMayHaveOneTokenOfEachSequence) {
  const Model model = load_model(ASSAY_TEST_DATA "/models/latent.toml");
  const StepSettings settings = {.batch = {2, 4}};
  const StrategyRun single = run_strategy(model, settings, "");
  for (const char* strategy : {"cp=4,context=ulysses", "cp=2", "tp=4,sp=1"})
    expect_near_single_device(run_strategy(model, settings, strategy), single, allowed);
}

INSTANTIATE_TEST_SUITE_P(
    Facts, Strategy,
    testing::Values("dp=2", "dp=4,zero=1", "dp=2,zero=2", "dp=2,zero=3", "tp=2", "tp=2,sp=1", "tp=4,sp=1",
                    "cp=2,context=ulysses", "cp=2", "cp=4", "pp=2", "pp=4", "pp=2,vpp=2,schedule=interleaved",
                    "pp=2,schedule=zero-bubble", "pp=2,schedule=dualpipe", "pp=4,schedule=dualpipe",
                    "dp=2,ep=2", "dp=2,ep=2,dispatch=allgather", "dp=4,ep=4,dispatch=hierarchical,node=2",
                    "dp=4,ep=2", "tp=2,ep=2", "tp=2,sp=1,ep=2", "tp=2,etp=2", "dp=2,etp=2", "cp=2,ep=2",
                    "dp=4,etp=2,ep=2,dispatch=allgather", "tp=2,pp=2,dp=2,ep=4",
                    "tp=2,sp=1,pp=2,vpp=2,schedule=interleaved,ep=2", "dp=2,cp=2,zero=3"),
    [](const auto& info) {
      std::string name = info.param;
      std::ranges::replace_if(
          name, [](char c) { return !std::isalnum(static_cast<unsigned char>(c)); }, '_');
      return name;
    });

}  // namespace
}  // namespace assay::align::strategies_test
