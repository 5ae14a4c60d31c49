// Experts that move between ranks compute what they do at home, over several steps.
#include "assay/align/strategies/expert_placement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "strategy_run.h"

namespace assay::align::expert_placement_test {
namespace {

using testing::ElementsAre;

TEST(ExpertPlacement, RanksGetAsManyTokensAsCanBe) {
  const std::vector<std::int64_t> tokens = {9, 8, 1, 2, 7, 3};
  EXPECT_THAT(slots_by_load(tokens, 2), ElementsAre(0, 3, 5, 1, 2, 4));  // 14 and 16
  EXPECT_THAT(slots_by_load(tokens, 3), ElementsAre(0, 2, 1, 3, 4, 5));  // 10 each
  EXPECT_THAT(slots_of_experts({2, 0, 1}), ElementsAre(1, 2, 0));
}

// Ranks 0 and 1 have slots 0, 1 and 2, 3; then rank 1 keeps nothing that it had.
TEST(ExpertPlacement, RowsGoToTheirSlotsAndBack) {
  const Slots home = home_slots(4), moved = {2, 3, 1, 0};
  const Parallel parallel = parse_parallel("dp=2,ep=2");
  run_ranks(2, [&](Communicator& communicator) {
    const int me = communicator.rank();
    const Ranks ranks(communicator, Mesh(parallel, me), arithmetic(Precision::fp64));
    const auto rows = [](double a, double b) {
      return Tensor({2, 1}, std::span<const double>(std::array{a, b}));
    };
    const Tensor at_home = me == 0 ? rows(0, 1) : rows(2, 3);
    const Tensor there = move_experts(ranks, "w", at_home, home, moved);
    EXPECT_EQ(there.values(), me == 0 ? std::vector({2.0, 3.0}) : std::vector({1.0, 0.0}));
    EXPECT_EQ(move_experts(ranks, "w", there, moved, home).values(), at_home.values());
  });
}

class MovingExperts : public testing::Test {
 protected:
  const Model model_ = load_model(ASSAY_TEST_DATA "/models/latent.toml");
  StepSettings settings_ = {.batch = {1, 8}, .micro_batches = 4, .precision = Precision::exact};

  void expect_bits(const std::vector<std::string>& strategies) {
    constexpr int steps = 3;  // home, moved, and moved from there
    const StrategyRun single = run_strategy(model_, settings_, "", steps);
    for (const std::string& strategy : strategies) {
      SCOPED_TRACE(strategy);
      expect_bits_of_single_device(run_strategy(model_, settings_, strategy + ",placement=dynamic", steps),
                                   single);
    }
  }
};

TEST_F(MovingExperts, ThreeStepsHaveTheBitsOfASingleDevice) {
  expect_bits({"dp=2,ep=2", "dp=4,ep=2,zero=1", "dp=4,ep=2,zero=2", "dp=4,ep=2,zero=3",
               "dp=4,ep=4,dispatch=hierarchical,node=2", "dp=4,ep=2,etp=2,dispatch=allgather",
               "tp=2,sp=1,pp=2,ep=2"});
}

TEST_F(MovingExperts, MuonsMomentumGoesWithThem) {
  settings_.optimizer = parse_optimizer("muon");
  expect_bits({"dp=4,ep=2,etp=2", "dp=4,ep=2,zero=1"});
}

}  // namespace
}  // namespace assay::align::expert_placement_test
