#pragma once

#include <string>
#include <vector>

#include "assay/compare/rules/rules.h"
#include "assay/dumps/layout/merge.h"

namespace assay {

/// Gives the tensors of the actual side the names that the reference has for them: by [[rename]] rules; then,
/// where it makes tensors meet that otherwise do not, without what wrappers add to the names of modules
/// (`module.`, `_orig_mod.`), a loss for the only loss, and arguments by their position and shape.
/// Returns what was done beside the rules, and the rule that would make more of them meet: for the report.
/// @throws Error  if rules give two tensors the same name
std::vector<std::string> meet_names(std::vector<LogicalTensor>& actual,
                                    const std::vector<LogicalTensor>& reference, const Rules&);

/// The shape under which both can be compared: the reference's, if the actual side's is the same but for
/// leading dimensions that were taken as one; else the actual side's own.
Shape common_shape(const Shape& actual, const Shape& reference);

}  // namespace assay
