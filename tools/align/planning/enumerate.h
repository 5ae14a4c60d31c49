#pragma once

#include <vector>

#include "assay/align/planning/estimate.h"

namespace assay::align {

/// A strategy with what it needs and takes.
struct Candidate {
  Parallel parallel;
  Memory memory;
  Cost cost;
};

struct Enumeration {
  std::int64_t valid = 0;               ///< strategies that the model, the batch and the devices allow
  std::int64_t fitting = 0;             ///< of these, those whose ranks have the memory
  double least_memory = 0;              ///< of a valid one
  std::vector<Candidate> fastest = {};  ///< of those that fit, the fastest first
};

/// All strategies of so many devices that are made of tp within a node (arXiv 2104.04473, section 3, takeaway
/// 1) with sp, cp that leaves a rank 4,096 tokens of a sequence (Llama 3 has 8,192: arXiv 2407.21783, Table
/// 4), dp with ZeRO, pp with every schedule and two chunks of interleaved ones, ep with every dispatch, and
/// recompute.
/// @param most  how many of the fastest are wanted
Enumeration enumerate(Blocks&, std::int64_t devices, double memory_per_device, std::size_t most);

}  // namespace assay::align
