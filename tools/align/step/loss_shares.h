#pragma once

#include <vector>

#include "assay/align/forward/forward.h"

namespace assay::align {

/// How the losses of micro-batches become that of a step.
enum class LossAverage : std::uint8_t {
  micro_batches,  ///< the mean of their means: with ragged masks it depends on how samples are grouped
  tokens          ///< all targets alike: Megatron-LM's calculate_per_token_loss
};
std::string_view name(LossAverage);
/// Throws Error that lists them.
LossAverage parse_loss_average(std::string_view);

/// What each loss of each micro-batch counts in the sum that a step goes back from.
class LossShares {
 public:
  /// @param tokens         of a micro-batch
  /// @param valid_targets  of each micro-batch of the step
  LossShares(LossAverage average, std::int64_t tokens, std::vector<std::int64_t> valid_targets);

  /// @param micro_batch  its number in the step
  double of(const Loss&, std::int64_t micro_batch) const;

 private:
  LossAverage average_;
  double tokens_, all_targets_;
  std::vector<std::int64_t> valid_targets_;
};

}  // namespace assay::align
