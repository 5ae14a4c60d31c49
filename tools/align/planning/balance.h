#pragma once

#include <optional>
#include <string>
#include <vector>

#include "assay/align/planning/estimate.h"

namespace assay::align {

/// A pipeline whose stages have as many layers, and recompute as much in each, as makes it fastest.
struct Balance {
  std::vector<StageLayers> stages;
  Memory memory;  ///< of the rank that needs most
  Cost cost;
  double gap = 0;  ///< by the objective, no other is faster by more than this part
};

/// The objective is the step of a schedule whose ranks all wait for the slowest stage: all micro-batches but
/// one take its time, and one goes through all. What the strategy says of stages and recompute is left aside.
/// @return  nothing if no cut fits
/// @throws Error  if the strategy is not one for the model
std::optional<Balance> balance(Blocks&, const Parallel&, double memory_per_device);

/// "7 layers: 4 full, 3 none", dense ones too.
std::string to_string(const StageLayers&);

}  // namespace assay::align
