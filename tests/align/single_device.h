#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <mutex>

#include "assay/align/pieces.h"
#include "assay/align/step.h"

/// What the ranks of a strategy have behind a step, and whether that is what a single device has.
namespace assay::align {

struct Result {
  StepResult step;
  std::vector<std::map<std::string, Tensor>> parameters;  ///< of each rank, its pieces
  std::vector<Mesh> meshes;
  Plan plan;
};

inline Result run(const Model& model, StepSettings settings, const std::string& parallel) {
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

inline void expect_near(const std::string& name, const Tensor& actual, const Tensor& expected) {
  ASSERT_EQ(actual.shape(), expected.shape()) << name;
  const std::vector<double> a = actual.values(), e = expected.values();
  double worst = 0;
  for (std::size_t i = 0; i < a.size(); ++i) worst = std::max(worst, std::abs(a[i] - e[i]));
  EXPECT_LE(worst, allowed) << name;
}

inline void expect_single_device(const Result& actual, const Result& single) {
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

inline std::string test_name(std::string text) {
  std::ranges::replace_if(
      text, [](char c) { return !std::isalnum(static_cast<unsigned char>(c)); }, '_');
  return text;
}

}  // namespace assay::align
