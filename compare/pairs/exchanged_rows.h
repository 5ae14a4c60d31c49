#pragma once

#include <string>
#include <vector>

#include "assay/dumps/layout/merge.h"

namespace assay {

/// Leaves out on both sides the calls of modules between whose micro-batches one side has exchanged rows:
/// experts over ranks that have data of their own take the tokens of all of them. Such a call is given other
/// numbers of rows on the two sides, and as many in all micro-batches of the step. One rank exchanges with
/// nobody. Returns a note that says which modules; empty: nothing was left out.
std::string leave_out_exchanged_rows(const Dump& actual_dump, std::vector<LogicalTensor>& actual,
                                     const Dump& reference_dump, std::vector<LogicalTensor>& reference);

}  // namespace assay
