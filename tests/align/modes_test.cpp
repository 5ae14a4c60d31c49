// Strategies that are another function by design: a single device in their modes has their bits, and without
// them others.
#include "assay/align/model/modes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "assay/golden/error.h"
#include "strategy_run.h"

namespace assay::align::modes_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

const Model latent = load_model(ASSAY_TEST_DATA "/models/latent.toml");

StepSettings settings() {
  return {.batch = {2, 8, 0.7}, .micro_batches = 4, .precision = Precision::exact};
}

StepSettings in_modes_of(const Model& model, const std::string& strategy) {
  StepSettings s = settings();
  s.batch.modes = modes_of(model, parse_parallel(strategy));
  return s;
}

Model balanced_over(BalanceLoss groups) {
  Model model = latent;
  model.losses.balance = groups;
  return model;
}

Model limited(double capacity_factor, DropPolicy policy = DropPolicy::probs, bool padded = false) {
  Model model = latent;
  model.moe.capacity_factor = capacity_factor;
  model.moe.drop_policy = policy;
  model.moe.pad_to_capacity = padded;
  return model;
}

// The step under the strategy, and on a single device in its modes and in its own.
void expect_replayed(const Model& model, const std::string& strategy) {
  SCOPED_TRACE(strategy);
  const StrategyRun actual = run_strategy(model, settings(), strategy);
  expect_bits_of_single_device(actual, run_strategy(model, in_modes_of(model, strategy), ""));
  EXPECT_NE(actual.step.loss, run_strategy(model, settings(), "").step.loss);
}

TEST(Modes, BalanceLossesCountOverGroupsOfRanks) {
  for (const char* strategy : {"dp=2", "dp=4", "dp=2,tp=2,sp=1", "dp=2,pp=2,schedule=zero-bubble"})
    expect_replayed(balanced_over(BalanceLoss::dp_group), strategy);
  for (const char* strategy : {"dp=2,ep=2", "dp=4,ep=2", "dp=4,ep=4,dispatch=hierarchical,node=2",
                               "tp=2,dp=2,ep=4,dispatch=allgather"})
    expect_replayed(balanced_over(BalanceLoss::ep_group), strategy);
}

TEST(Modes, AGroupWithinAMicroBatchCountsAsASingleDeviceDoes) {
  const Model model = balanced_over(BalanceLoss::ep_group);
  const StrategyRun single = run_strategy(model, settings(), "");
  for (const char* strategy : {"dp=2", "tp=2,ep=2", "cp=2,context=ulysses,ep=2"}) {
    SCOPED_TRACE(strategy);
    expect_bits_of_single_device(run_strategy(model, settings(), strategy), single);
  }
}

TEST(Modes, AStrategyReplaysTheModesOfAnother) {
  const Model model = balanced_over(BalanceLoss::dp_group);
  const StepSettings of_four = in_modes_of(model, "dp=4");
  const StrategyRun single = run_strategy(model, of_four, "");
  for (const char* strategy : {"dp=2", "dp=2,ep=2"}) {
    SCOPED_TRACE(strategy);
    expect_bits_of_single_device(run_strategy(model, of_four, strategy), single);
  }
}

TEST(Modes, RanksDropTokensByThemselves) {
  for (const char* strategy : {"tp=2", "tp=2,sp=1", "cp=2,context=ulysses", "tp=2,sp=1,ep=2"})
    expect_replayed(limited(0.75), strategy);
  expect_replayed(limited(0.75, DropPolicy::position), "tp=2,sp=1");
  expect_replayed(limited(0.75, DropPolicy::position, true), "tp=2,sp=1,cp=2,context=ulysses");
}

// A ring's attention is another sum: nothing but the loss's last digits.
TEST(Modes, RanksOfARingDropTheTokensOfTheirChunks) {
  const Model model = limited(0.75);
  StepSettings own = settings(), replayed = in_modes_of(model, "cp=2,tp=2");
  own.precision = replayed.precision = Precision::fp64;
  expect_near_single_device(run_strategy(model, own, "cp=2,tp=2"), run_strategy(model, replayed, ""), 1e-12);
}

TEST(Modes, DroppingGoesWithEveryWayToTheExperts) {
  const Model model = limited(0.75);
  const StrategyRun single = run_strategy(model, settings(), "");
  for (const char* strategy :
       {"dp=2,ep=2", "dp=2,ep=2,dispatch=allgather", "dp=2,etp=2", "pp=2",
        "dp=4,ep=4,dispatch=hierarchical,node=2", "recompute=full", "dp=2,ep=2,placement=dynamic"}) {
    SCOPED_TRACE(strategy);
    expect_bits_of_single_device(run_strategy(model, settings(), strategy), single);
  }
}

TEST(Modes, WithCapacityForAllNothingIsDropped) {
  const StrategyRun all = run_strategy(latent, settings(), "");
  expect_bits_of_single_device(run_strategy(limited(8), settings(), ""), all);
  EXPECT_NE(run_strategy(limited(0.75), settings(), "").step.loss, all.step.loss);
}

// Padding fills up with tokens that count 0; only how many tokens an expert had differs.
TEST(Modes, PaddingChangesOnlyTheLoads) {
  Model dropped = limited(1), padded = limited(1, DropPolicy::probs, true);
  dropped.moe.bias_rate = padded.moe.bias_rate = 0;
  expect_bits_of_single_device(run_strategy(padded, settings(), ""), run_strategy(dropped, settings(), ""));
}

TEST(Modes, SamplesAreRedistributed) {
  expect_replayed(latent, "dp=2,redistribute=1");
  expect_replayed(latent, "dp=4,redistribute=1,ep=2,zero=1");
}

// Over tokens a sample counts the same in every micro-batch, but for the shares of multi-token prediction.
TEST(Modes, AveragedOverTokensRedistributionChangesNothing) {
  Model model = latent;
  model.losses.mtp_depth = 0;
  StepSettings s = settings();
  s.precision = Precision::fp64;
  s.loss_average = LossAverage::tokens;
  expect_near_single_device(run_strategy(model, s, "dp=2,redistribute=1"), run_strategy(model, s, ""), 1e-12);
}

TEST(Modes, TheyAreSaid) {
  const auto of = [](const Model& model, const char* strategy) {
    return other_functions(modes_of(model, parse_parallel(strategy)));
  };
  EXPECT_THAT(of(latent, "tp=2,dp=4,ep=8,pp=2"), IsEmpty());
  EXPECT_THAT(of(balanced_over(BalanceLoss::ep_group), "dp=4,ep=2"), ElementsAre(HasSubstr("in 2 micro")));
  EXPECT_THAT(of(limited(1), "tp=2,cp=2,dp=2,redistribute=1"),
              ElementsAre(HasSubstr("each of the 4 ranks"), HasSubstr("2 micro-batches exchange")));
}

TEST(Modes, WhatCannotBeReplayedIsRefused) {
  const auto refusal = [](const Model& model, const char* of, const char* strategy) {
    StepSettings s = in_modes_of(model, of);
    s.parallel = parse_parallel(strategy);
    try {
      check(model, s);
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string("was accepted");
  };
  EXPECT_THAT(refusal(limited(1), "tp=2", "cp=2"), HasSubstr("drop tokens by themselves"));
  const Model over_dp = balanced_over(BalanceLoss::dp_group);
  EXPECT_THAT(refusal(over_dp, "dp=4", "pp=2"), HasSubstr("pp of 1"));
  EXPECT_THAT(refusal(over_dp, "dp=3", ""), HasSubstr("groups of 3 micro-batches; 4 are none"));
  const Model over_ep = balanced_over(BalanceLoss::ep_group);
  EXPECT_THROW(modes_of(over_ep, parse_parallel("tp=3,dp=2,ep=2")), Error);
  EXPECT_EQ(modes_of(over_ep, parse_parallel("tp=2,dp=4,ep=4")).counted_together, 2);
}

}  // namespace
}  // namespace assay::align::modes_test
