#pragma once

#include <vector>

#include "assay/compare/pairs/pair.h"
#include "assay/compare/rules.h"
#include "assay/dumps/merge.h"

namespace assay {

/// All tensors of a side; of which operator, a rule may know better than the recorder.
std::vector<LogicalTensor> tensors_of(const Dump&, const Rules&, bool is_actual);

/// One array on each side that has no name but its file's: the two are meant to be compared, whatever the
/// files are called.
bool is_lone_array(const Dump&, const std::vector<LogicalTensor>&);

/// Pairs in the reference's execution order; what only the actual side has follows the tensor it followed
/// there. Both must outlive the result.
std::vector<Pair> match(const std::vector<LogicalTensor>& actual, const std::vector<LogicalTensor>& reference,
                        const Rules&);

}  // namespace assay
