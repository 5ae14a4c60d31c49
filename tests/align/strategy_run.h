#pragma once

#include <map>
#include <string>
#include <vector>

#include "assay/align/step/training_step.h"

/// A step under a strategy beside the same step on a single device.
namespace assay::align {

struct StrategyRun {
  StepResult step;
  std::vector<std::map<std::string, Tensor>> parameters, gradients;  ///< of each rank, its pieces
  std::vector<Mesh> meshes;
  Plan plan;
};

/// @param settings  but for the strategy
/// @return  the last step
StrategyRun run_strategy(const Model&, StepSettings settings, const std::string& parallel, int steps = 1);

/// The piece that this rank has of a single device's tensor.
Tensor expected_piece(const StrategyRun&, std::size_t rank, const std::string& name, const Tensor& whole);

/// Losses, norm and every parameter of every rank, to within that much.
void expect_near_single_device(const StrategyRun& actual, const StrategyRun& single, double allowed);
/// Bit for bit, gradients too.
void expect_bits_of_single_device(const StrategyRun& actual, const StrategyRun& single);

}  // namespace assay::align
