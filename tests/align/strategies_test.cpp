// Every parallel strategy against the single device (facts E).
#include <gtest/gtest.h>

#include <algorithm>
#include <mutex>

#include "assay/align/pieces.h"
#include "assay/align/step.h"

namespace assay::align {
namespace {

struct Result {
  StepResult step;
  std::vector<std::map<std::string, Tensor>> parameters;  ///< of each rank, its pieces
  std::vector<Mesh> meshes;
  Plan plan;
};

Result run(const Model& model, StepSettings settings, const std::string& parallel) {
  settings.parallel = parse_parallel(parallel);
  const auto ranks = static_cast<std::size_t>(settings.parallel.ranks());
  Result result;
  result.parameters.resize(ranks);
  for (std::size_t r = 0; r < ranks; ++r) result.meshes.emplace_back(settings.parallel, static_cast<int>(r));
  std::mutex mutex;
  run_ranks(static_cast<int>(ranks), [&](Communicator& communicator) {
    Replay replay(model, settings, communicator);
    const StepResult step = replay.step(nullptr);
    auto parameters = replay.parameters();
    const std::lock_guard lock(mutex);
    if (communicator.rank() == 0) {
      result.step = step;
      result.plan = replay.plan();
    }
    result.parameters[static_cast<std::size_t>(communicator.rank())] = std::move(parameters);
  });
  return result;
}

// float64: a few hundred sums of some hundred terms in another order.
constexpr double allowed = 1e-12;

void expect_near(const std::string& name, const Tensor& actual, const Tensor& expected) {
  ASSERT_EQ(actual.shape(), expected.shape()) << name;
  const std::vector<double> a = actual.values(), e = expected.values();
  double worst = 0;
  for (std::size_t i = 0; i < a.size(); ++i) worst = std::max(worst, std::abs(a[i] - e[i]));
  EXPECT_LE(worst, allowed) << name;
}

void expect_single_device(const Result& actual, const Result& single) {
  EXPECT_NEAR(actual.step.loss, single.step.loss, allowed * single.step.loss);
  EXPECT_NEAR(actual.step.grad_norm, single.step.grad_norm, allowed * single.step.grad_norm);
  std::size_t compared = 0;
  for (std::size_t r = 0; r < actual.parameters.size(); ++r) {
    for (const auto& [name, value] : actual.parameters[r]) {
      Tensor expected = single.parameters.front().at(name);
      for (const Sharding& s : actual.plan.at(name).shardings)
        expected = piece_of(expected, s.placed.dim, actual.meshes[r].coordinate(s.axis),
                            actual.meshes[r].size(s.axis));
      expect_near(name + " of rank " + std::to_string(r), value, expected);
      ++compared;
    }
  }
  EXPECT_GE(compared, single.parameters.front().size());
}

class Strategy : public testing::TestWithParam<const char*> {};

TEST_P(Strategy, GivesTheStepOfASingleDevice) {
  const Model model = load_model("telechat3-105b-tiny");
  const StepSettings settings = {.batch = {2, 16}, .micro_batches = 8};
  static const Result single = run(model, settings, "");
  expect_single_device(run(model, settings, GetParam()), single);
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
}  // namespace assay::align
