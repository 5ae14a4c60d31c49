#pragma once

#include <string_view>
#include <vector>

#include "assay/compare/result/finding.h"
#include "assay/compare/rules/rules.h"
#include "assay/dumps/record/dump.h"

namespace assay {

/// Adds the names of the compared dumps to a report, and the remarks of their readers.
void describe_dumps(Report&, const Dump& actual, const Dump& reference);

/// Returns findings for the possible tensors that a reader could not take. They are not compared.
/// @param side  "actual" or "reference"
void add_left_out(std::vector<Finding>&, const Dump&, std::string_view side, const Rules&);

}  // namespace assay
