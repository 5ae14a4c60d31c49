#include "strategy_run.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <mutex>

#include "assay/align/arithmetic/pieces.h"

namespace assay::align {
namespace {

bool same_bits(const Tensor& a, const Tensor& b) {
  return a.dtype() == b.dtype() && a.shape() == b.shape() && std::ranges::equal(a.bytes(), b.bytes());
}

}  // namespace

StrategyRun run_strategy(const Model& model, StepSettings settings, const std::string& parallel, int steps) {
  settings.parallel = parse_parallel(parallel);
  const auto ranks = static_cast<std::size_t>(settings.parallel.ranks());
  StrategyRun result;
  result.parameters.resize(ranks);
  result.gradients.resize(ranks);
  for (std::size_t r = 0; r < ranks; ++r) result.meshes.emplace_back(settings.parallel, static_cast<int>(r));
  std::mutex mutex;
  run_ranks(static_cast<int>(ranks), [&](Communicator& communicator) {
    TrainingStep replay(model, settings, communicator);
    StepResult step;
    for (int k = 0; k < steps; ++k) step = replay.step(nullptr);
    auto parameters = replay.parameters();
    const std::lock_guard lock(mutex);
    const auto rank = static_cast<std::size_t>(communicator.rank());
    if (rank == 0) {
      result.step = step;
      result.plan = replay.plan();
    }
    result.parameters[rank] = std::move(parameters);
    if (settings.parallel.zero < 2) result.gradients[rank] = replay.gradients();
  });
  return result;
}

Tensor expected_piece(const StrategyRun& run, std::size_t rank, const std::string& name,
                      const Tensor& whole) {
  Tensor piece = whole;
  for (const Sharding& s : run.plan.at(name).shardings)
    piece = piece_of(piece, s.placed.dim, run.meshes[rank].coordinate(s.axis), run.meshes[rank].size(s.axis));
  return piece;
}

void expect_near_single_device(const StrategyRun& actual, const StrategyRun& single, double allowed) {
  EXPECT_NEAR(actual.step.loss, single.step.loss, allowed * single.step.loss);
  EXPECT_NEAR(actual.step.grad_norm, single.step.grad_norm, allowed * single.step.grad_norm);
  std::size_t compared = 0;
  for (std::size_t r = 0; r < actual.parameters.size(); ++r) {
    for (const auto& [name, value] : actual.parameters[r]) {
      const Tensor expected = expected_piece(actual, r, name, single.parameters.front().at(name));
      ASSERT_EQ(value.shape(), expected.shape()) << name;
      const std::vector<double> a = value.values(), e = expected.values();
      double worst = 0;
      for (std::size_t i = 0; i < a.size(); ++i) worst = std::max(worst, std::abs(a[i] - e[i]));
      EXPECT_LE(worst, allowed) << name << " of rank " << r;
      ++compared;
    }
  }
  EXPECT_GE(compared, single.parameters.front().size());
}

void expect_bits_of_single_device(const StrategyRun& actual, const StrategyRun& single) {
  EXPECT_EQ(actual.step.loss, single.step.loss);
  EXPECT_EQ(actual.step.grad_norm, single.step.grad_norm);
  std::size_t compared = 0;
  for (std::size_t r = 0; r < actual.parameters.size(); ++r) {
    const auto compare = [&](const char* what, const auto& own, const auto& all) {
      for (const auto& [name, value] : own) {
        EXPECT_TRUE(same_bits(value, expected_piece(actual, r, name, all.at(name))))
            << what << name << " of rank " << r;
        ++compared;
      }
    };
    compare("", actual.parameters[r], single.parameters.front());
    compare("gradient of ", actual.gradients[r], single.gradients.front());
  }
  EXPECT_GE(compared, single.parameters.front().size());
}

}  // namespace assay::align
