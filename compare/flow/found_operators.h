#pragma once

#include "assay/compare/flow/relations.h"

namespace assay {

/// Finds the operators of modules whose recorded class is not known (a framework's own norm, an activation
/// under another name): those that make the results of the reference from all that was recorded with them.
/// Both sides take them for all calls of the class.
void find_operators(const SideValues& reference, const Makes&, RecordedCalls& reference_calls,
                    RecordedCalls& actual_calls);

}  // namespace assay
