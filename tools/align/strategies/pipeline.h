#pragma once

#include <vector>

#include "assay/align/model/stage.h"
#include "assay/align/placement/mesh.h"

namespace assay::align {

/// What a rank does in a step, one after the other.
struct Action {
  enum class Kind : std::uint8_t { forward, backward, weights };
  Kind kind;
  std::int64_t micro_batch;
  std::int64_t stage;
  bool operator==(const Action&) const = default;
};

/// A model cut into stages of layers, and the order in which the ranks of pp work on them (docs/semantics.md
/// D8 to D10).
class Pipeline {
 public:
  /// @throws Error  if the strategy, the layers and the number of micro-batches do not go together
  Pipeline(const Parallel&, const Model&, std::int64_t micro_batches);

  const std::vector<Stage>& stages() const { return stages_; }
  /// The rank of pp that computes it.
  std::int64_t rank_of(std::int64_t stage, std::int64_t micro_batch) const;
  /// Of a rank of pp.
  std::vector<Action> actions(std::int64_t rank) const;

 private:
  std::vector<Action> one_f_one_b(std::int64_t rank) const;
  std::vector<Action> interleaved(std::int64_t rank) const;
  std::vector<Action> zero_bubble(std::int64_t rank) const;
  std::vector<Action> dualpipe(std::int64_t rank) const;

  const Parallel parallel_;
  const std::int64_t micro_batches_;
  std::vector<Stage> stages_;
};

}  // namespace assay::align
