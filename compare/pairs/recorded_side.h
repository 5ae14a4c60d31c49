#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "assay/compare/result/finding.h"
#include "assay/compare/rules/expectation.h"
#include "assay/dumps/layout/merge.h"

namespace assay {

/// One side of a pair of which at least one side has no values.
struct RecordedSide {
  std::optional<TensorSource> values;    ///< where they were recorded
  std::optional<Statistics> statistics;  ///< what stands for them where not
  std::string checksum;
  std::string lacking;        ///< "only statistics were" recorded; empty: it has values
  std::string copies_differ;  ///< ranks that should hold one tensor do not: how that shows
};

/// @param side  "actual" or "reference"
/// @throws Error as merge does, and where the statistics contradict each other
RecordedSide recorded_side(const Dump&, const LogicalTensor&, std::string_view side);

/// Judges a pair by what both sides have: its shape and dtype, the statistics, the checksum. Equal checksums
/// pass, a statistic outside of what the rule allows fails, and one inside says that statistics agree.
/// Finding::actual_* and reference_* are filled before.
void judge_recorded(Finding&, const RecordedSide& actual, const RecordedSide& reference, const Expectation&);

/// The user takes statistics for a comparison: where they agree, the tensor passes, and its rule says so.
void accept_statistics(Finding&);

}  // namespace assay
