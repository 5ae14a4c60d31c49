#pragma once

#include <string_view>
#include <vector>

#include "assay/compare/result/finding.h"
#include "assay/compare/rules/rules.h"
#include "assay/dumps/record/dump.h"

namespace assay {

/// Which dumps a report is of, and what their readers have to say.
void describe_dumps(Report&, const Dump& actual, const Dump& reference);

/// What a reader could not take as a tensor is not compared, and stands in the report like any tensor that is
/// not.
/// @param side  "actual" or "reference"
void add_left_out(std::vector<Finding>&, const Dump&, std::string_view side, const Rules&);

}  // namespace assay
