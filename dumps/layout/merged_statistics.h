#pragma once

#include <optional>
#include <string>
#include <vector>

#include "assay/dumps/layout/layout.h"
#include "assay/dumps/layout/merge.h"
#include "assay/dumps/record/dump.h"

namespace assay {

/// The checksum of the bytes that a rank has of a tensor.
struct PartChecksum {
  std::vector<Box> boxes;
  bool is_box = false;  ///< they are those of one box, in C order
  std::string checksum;
  bool operator==(const PartChecksum&) const = default;
};

/// The recorded statistics of a tensor whose values were not kept on every rank.
struct MergedStatistics {
  std::optional<Statistics> statistics;
  std::string checksum;                      ///< of an uncut tensor
  std::vector<PartChecksum> part_checksums;  ///< of one that is cut; empty: not of all parts
  std::string copies_differ;                 ///< how copies show that they differ; empty if they agree
};

/// Computes the statistics of the whole tensor. A tensor in parts gets its extremes and its norm only: means
/// and sums would be rounded once more. Partial sums, padded parts and permuted rows get no statistics.
/// @throws Error  as merge does, if parts are missing or overlap
MergedStatistics merge_statistics(const Dump&, const LogicalTensor&);

}  // namespace assay
