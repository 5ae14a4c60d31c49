#pragma once

#include <optional>
#include <string>

#include "assay/dumps/layout/merge.h"
#include "assay/dumps/record/dump.h"

namespace assay {

/// What recorders computed of a tensor whose values they did not keep on every rank.
struct MergedStatistics {
  std::optional<Statistics> statistics;
  std::string checksum;       ///< of a tensor that is not cut
  std::string copies_differ;  ///< ranks that should hold the same bits do not: how that shows
};

/// The statistics of the whole tensor: of parts the extremes and the norm, as their means and sums would be
/// rounded once more. Nothing can be said of partial sums, of padded parts and of permuted rows.
/// @throws Error  as merge does, if parts are missing or overlap
MergedStatistics merge_statistics(const Dump&, const LogicalTensor&);

}  // namespace assay
