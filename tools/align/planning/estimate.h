#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "assay/align/planning/block.h"
#include "assay/align/strategies/pipeline.h"

namespace assay::align {

/// What a step of training is planned for.
struct Training {
  Model model;
  Batch batch;                 ///< a micro-batch
  std::int64_t sequences = 0;  ///< of a step
  Devices devices = {};
  Storage storage = {};
  /// Of each rank of dp. Throws Error if the sequences do not divide.
  std::int64_t micro_batches(const Parallel&) const;
};

/// Bytes of the rank of pp that needs most.
struct Memory {
  double parameters = 0, gradients = 0, states = 0;
  double activations = 0;  ///< of all micro-batches on their way
  double again = 0;        ///< of a layer that is computed again, while it goes backward
  double all() const { return parameters + gradients + states + activations + again; }
};

/// Seconds of a step. Nothing overlaps.
struct Cost {
  double compute = 0;              ///< forward and backward of the rank of pp that has most to do
  double again = 0;                ///< and what it recomputes, with communication
  std::map<Axis, double> sending;  ///< and its communication within stages
  double bubble = 0;               ///< that it waits for others, and for what they send
  double gradients = 0;            ///< over dp, and the parameters back
  double all = 0;
};

/// What strategies have in common, found once: blocks of the model, and what schedules hold.
class Blocks {
 public:
  explicit Blocks(const Training& training) : training_(training) {}
  const Training& training() const { return training_; }
  /// @throws Error  as measure does
  const Block& embedding(const Parallel& p) { return of(p, {0, 0, true, false}, false); }
  const Block& layer(const Parallel&, bool has_experts);
  const Block& head(const Parallel&);  ///< with multi-token prediction
  /// How many micro-batches a rank of pp holds of each of its stages, where that is most: some times of the
  /// schedule, none of which holds more of every stage than another.
  using Held = std::map<std::int64_t, std::int64_t>;  ///< by stage
  const std::vector<Held>& held(const Pipeline&, const Parallel&, std::int64_t micro_batches,
                                std::int64_t rank);

 private:
  using Key = std::array<std::int64_t, 10>;
  const Block& of(const Parallel&, const Stage&, bool has_experts);

  const Training training_;
  std::map<Key, Block> known_;
  std::map<Key, std::vector<Held>> held_;
};

/// How many layers of a stage recompute what: dense ones, and those with experts.
using StageLayers = std::array<std::array<std::int64_t, Block::modes>, 2>;

/// Parameters, gradients and states of a rank that has so many elements.
Memory memory_of(const Parallel&, const Storage&, double dense, double experts);

/// A strategy for a model, cut into stages: what each holds and takes.
class StagedModel {
 public:
  /// @throws Error  if the strategy is not one for the model, with the reason
  StagedModel(Blocks& blocks, const Parallel& p) : StagedModel(blocks, p, {}) {}
  /// @param layers  of each stage; none: as the strategy says, all alike
  StagedModel(Blocks&, const Parallel&, const std::vector<StageLayers>& layers);
  void set_zero(std::int64_t zero) { parallel_.zero = zero; }

  const Parallel& parallel() const { return parallel_; }
  const Pipeline& pipeline() const { return pipeline_; }
  /// Of a rank of pp.
  std::vector<std::int64_t> stages_of(std::int64_t rank) const;
  std::int64_t micro_batches() const { return micro_batches_; }
  /// Of a rank of pp.
  Memory memory(std::int64_t rank) const;
  Memory memory() const;
  /// No step takes less: the rank that has most to do never waits.
  double least_seconds() const;
  Cost cost() const;

 private:
  struct Work {
    double forward = 0, backward = 0;  ///< seconds for a micro-batch, weights not included
    double weights = 0;
    double compute = 0, again = 0, kept = 0, again_kept = 0, dense = 0, experts = 0, embedding = 0;
    std::map<Axis, double> sending = {};
  };
  struct Elements {
    double dense, experts;
  };
  StageLayers layers_of(const Stage&) const;
  Work work_of(const Stage&, const StageLayers&) const;
  Elements elements(std::int64_t rank) const;
  double seconds_of(std::int64_t rank) const;
  double pass_on_seconds() const;
  double gradient_seconds(std::int64_t rank) const;

  Parallel parallel_;
  Blocks& blocks_;
  const std::int64_t micro_batches_;
  const Devices devices_;
  const Storage storage_;
  const Pipeline pipeline_;
  std::vector<Work> work_;  ///< by stage
  double output_ = 0;       ///< bytes from a stage to the next
};

}  // namespace assay::align
