#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "assay/compare/result/finding.h"
#include "assay/compare/rules/expectation.h"
#include "assay/dumps/layout/merge.h"
#include "assay/dumps/layout/merged_statistics.h"

namespace assay {

/// One side of a pair with missing values on at least one side.
struct RecordedSide {
  std::optional<TensorSource> values;    ///< if they were recorded
  std::optional<Statistics> statistics;  ///< instead of the values, if they were not recorded
  std::string checksum;
  std::vector<PartChecksum> part_checksums;  ///< as MergedStatistics has them
  std::string lacking;        ///< "only statistics were" recorded; empty for a side with values
  std::string copies_differ;  ///< how copies show that they differ; empty if they agree
};

/// @param side    "actual" or "reference"
/// @throws Error  as merge does, and if the statistics contradict each other
RecordedSide recorded_side(const Dump&, const LogicalTensor&, std::string_view side);

/// Judges a pair by its shape, dtype, statistics and checksum. Equal checksums pass. A statistic outside the
/// rule fails; one inside only shows that statistics agree. Finding::actual_* and reference_* must be filled.
void judge_recorded(Finding&, const RecordedSide& actual, const RecordedSide& reference, const Expectation&);

/// Accepts agreeing statistics as a comparison: the tensor passes, and its rule says so.
void accept_statistics(Finding&);

}  // namespace assay
