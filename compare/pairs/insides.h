#pragma once

#include <string>
#include <vector>

#include "assay/dumps/layout/merge.h"

namespace assay {

/// Leaves out on both sides what shows how modules make their results (Record::within) where the two sides
/// make them differently: functions that a module calls in another number, order or shape, and what a
/// container is given or returns on one side only. What follows from them is recorded by itself. Returns a
/// note with their number; empty: nothing was left out.
std::string leave_out_other_insides(std::vector<LogicalTensor>& actual,
                                    std::vector<LogicalTensor>& reference);

}  // namespace assay
