#pragma once

#include <string>
#include <vector>

#include "assay/dumps/layout/merge.h"

namespace assay {

/// Gives results of the actual side that have no partner the names of the reference's that have their values:
/// two programs call the same thing by other names, or record it at another place. A name holds for all
/// layers, micro-batches and steps if most of those that are looked at are nearer to each other than a
/// sixteenth of how far they vary, the nearest first; one that then differs is a difference. Returns what was
/// met, one sentence each.
std::vector<std::string> meet_by_values(const Dump& actual, std::vector<LogicalTensor>& actual_tensors,
                                        const Dump& reference,
                                        const std::vector<LogicalTensor>& reference_tensors);

}  // namespace assay
