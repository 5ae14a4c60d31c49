#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "assay/align/forward/forward.h"
#include "assay/align/tape/tape.h"

/// Where the rows of experts, which each rank has of several micro-batches and in an order of its own, lie on
/// a single device: those of a micro-batch by (expert, token, choice).
namespace assay::align {

/// Rows of a rank that lie behind each other there.
struct RowRun {
  std::int64_t micro_batch = 0;
  std::int64_t first = 0;          ///< on the single device
  std::int64_t all = 0;            ///< rows of the micro-batch
  std::vector<std::int64_t> here;  ///< which rows of the rank
};

struct ExpertRows {
  std::vector<RowRun> sent;  ///< of the tokens that this rank has gathered
  std::vector<RowRun> held;  ///< of its experts
  /// What moe_permute gives on a single device, by the choices of this rank's micro-batch.
  Tensor sorted_index, tokens_per_expert;
};

/// Of every layer whose experts are spread over ranks, by its module. Collective: the rows' numbers go the
/// way of the rows.
/// @param micro_batch  its number and extents
std::map<std::string, ExpertRows> expert_rows(const Ranks&, const Tape&, std::int64_t micro_batch,
                                              const Batch&);

/// A tensor of tokens where it is placed as everything outside of experts: before ranks gather it, or behind
/// what makes one tensor of their shares again.
struct DenseTokens {
  Value value;
  const Machine::Node* border;  ///< what types it for the axes of experts, or back
};
/// Nothing if it has no such place: it has rows.
std::optional<DenseTokens> before_experts(const Tape&, const Value&);
std::optional<DenseTokens> behind_experts(const Tape&, const Value&);

}  // namespace assay::align
