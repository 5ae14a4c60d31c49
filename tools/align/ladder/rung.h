#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "assay/align/ladder/switches.h"

namespace assay::align {

/// What is trained in a rung, on whatever ranks.
struct Work {
  std::string model;  ///< as load_model takes it; empty: nobody here knows it
  std::string precision = "exact";
  std::string optimizer = "adamw";
  std::string loss_average = "micro-batches";
  double prompt = 0;
  std::int64_t steps = 2, micro_batches = 4, sequences = 1, length = 8, seed = 0;
  bool operator==(const Work&) const = default;
};

/// A configuration that the subject must pass before the next one means anything (TeleChat3-MoE report,
/// section 3.2).
struct Rung {
  enum class Kind : std::uint8_t { single, dimension, pair, full, larger, stated };
  std::string name;  ///< unique: "single device", "tp + sp", "full, longer"
  Kind kind = Kind::single;
  Work work = {};
  Parallel parallel = {};
};

/// A file-system name for it, without dots: "tp-sp".
std::string folder_of(const Rung&);

/// Single device; every dimension of the strategy alone; pairs; all; then more steps, micro-batches and
/// tokens. Expert parallel lies over the ranks of other dimensions: it comes with those that it needs.
/// @throws Error  if the strategy does not go with the work, with the reason
std::vector<Rung> ladder_of(const Work&, const Parallel& target);

/// Of it the single device and every dimension alone, part after part.
std::vector<Rung> stages_alone(const Work&, const Parallel& target);

/// So many micro-batches that the strategy can run them and that none is the first and the last at once.
std::int64_t usual_micro_batches(const Work&, const Parallel& target);

/// Whether model, work and strategy go together; why not. Of a model that is not known only what holds for
/// all.
std::string objection(const Work&, const Parallel&);

/// Tensors of activations that a rung computes times its ranks: what it costs beside another.
double cost_of(const Rung&);

}  // namespace assay::align
