// The fault catalogue: what it covers, and that each fault changes a replay.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <set>

#include "assay/align/faults/fault.h"
#include "assay/align/replay/replay_run.h"
#include "assay/golden/error.h"
#include "strategy_run.h"

namespace assay::align::faults_test {
namespace {

using testing::HasSubstr;

StepSettings settings_of(const FaultConditions& c, std::int64_t length) {
  StepSettings s;
  s.batch = {c.sequences, length, c.prompt};
  s.micro_batches = c.micro_batches;
  s.precision = parse_precision(c.precision);
  s.optimizer = parse_optimizer(c.optimizer);
  s.loss_average = parse_loss_average(c.loss_average);
  return s;
}

// All numbers of a run: losses, norms, parameters and gradients of every rank.
std::vector<std::vector<double>> numbers_of(const StrategyRun& run) {
  std::vector<std::vector<double>> all = {{run.step.loss, run.step.grad_norm}};
  for (const auto& of_rank : {run.parameters, run.gradients}) {
    for (const auto& tensors : of_rank) {
      for (const auto& [name, tensor] : tensors) all.push_back(tensor.values());
    }
  }
  return all;
}

TEST(Faults, CoverEveryAreaPhaseAndDimension) {
  std::set<std::string_view> ids, areas, phases, dimensions;
  for (const Fault& f : fault_catalogue()) {
    EXPECT_TRUE(ids.insert(f.id).second) << f.id;
    EXPECT_FALSE(f.title.empty() || f.source.empty() || f.answer.tensor.empty()) << f.id;
    areas.insert(f.area);
    phases.insert(f.answer.phase);
    dimensions.insert(f.answer.dimension);
  }
  EXPECT_GE(ids.size(), 100u);
  EXPECT_THAT(phases, testing::UnorderedElementsAre("forward", "backward", "optimizer"));
  for (const char* dimension : {"tp", "cp", "dp", "ep", "pp"})
    EXPECT_TRUE(dimensions.contains(dimension)) << dimension;
  // Table 3 of the TeleChat3-MoE report, and its practical case: a missing all-reduce; not divided by tp; the
  // pipeline's accumulation; RoPE's offset under sequence parallel; routing and combine; weight decay.
  for (const char* id : {"F001", "F005", "F032", "F142", "F053", "F146", "F110"})
    EXPECT_TRUE(ids.contains(id)) << id;
  // TTrace's bugs that are arithmetic (docs/semantics.md F).
  for (const char* id : {"F151", "F083", "F023", "F024", "F078", "F002", "F075", "F090", "F152", "F153",
                         "F001", "F060", "F005"})
    EXPECT_TRUE(ids.contains(id)) << id;
}

TEST(Faults, HaveACauseUnlessTheyHaveNoClosedForm) {
  for (const Fault& f : fault_catalogue())
    EXPECT_EQ(f.kind == FaultKind::none, f.answer.causes.empty()) << f.id << ": " << f.title;
}

TEST(Faults, AnUnknownOneIsRefused) {
  try {
    find_fault("F999");
    FAIL();
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), HasSubstr("there is no fault 'F999'; expected one of F001 to F156"));
  }
}

TEST(Faults, OneThatDoesNotShowIsRefusedWithWhatIsMissing) {
  const Fault& fault = find_fault("F001");
  EXPECT_TRUE(shows(fault, parse_parallel("tp=4,sp=1,dp=2")));
  EXPECT_FALSE(shows(fault, parse_parallel("tp=2")));
  try {
    check_fault(fault, parse_parallel("dp=2"));
    FAIL();
  } catch (const Error& e) {
    EXPECT_STREQ(e.what(),
                 "fault F001 does not show under 'dp=2', which lacks tp > 1, sp=1; it does under --parallel "
                 "tp=2,sp=1");
  }
}

TEST(Faults, AReplayIsRightWhereTheFaultDoesNotShow) {
  const Model model = load_model("telechat3-105b-tiny");
  StepSettings settings = settings_of({}, 8);
  const auto right = numbers_of(run_strategy(model, settings, "dp=2"));
  settings.fault = find_fault("F001").plant;  // of tp, which there is not
  EXPECT_EQ(numbers_of(run_strategy(model, settings, "dp=2")), right);
}

// One of `of` parts of the catalogue; with ASSAY_EVERY_FAULT all of it.
class PlantedFault : public testing::TestWithParam<std::size_t> {};

TEST_P(PlantedFault, ChangesTheNumbersOfItsReplay) {
  const Fault& fault = fault_catalogue()[GetParam()];
  constexpr std::size_t one_of = 16;
  if (GetParam() % one_of != 0 && std::getenv("ASSAY_EVERY_FAULT") == nullptr)
    GTEST_SKIP() << "one fault of " << one_of << " is planted; all of them in slow.faults";
  const Model model = load_model(std::string(fault.conditions.model));
  StepSettings settings = settings_of(fault.conditions, 8);
  const std::string parallel(fault.conditions.parallel);
  const StrategyRun right = run_strategy(model, settings, parallel, 2);
  settings.fault = fault.plant;
  const StrategyRun wrong = run_strategy(model, settings, parallel, 2);
  EXPECT_NE(numbers_of(wrong), numbers_of(right)) << fault.title;
}

std::string id_of(const testing::TestParamInfo<std::size_t>& info) {
  return std::string(fault_catalogue()[info.param].id);
}
INSTANTIATE_TEST_SUITE_P(Catalogue, PlantedFault, testing::Range(std::size_t{0}, fault_catalogue().size()),
                         id_of);

}  // namespace
}  // namespace assay::align::faults_test
