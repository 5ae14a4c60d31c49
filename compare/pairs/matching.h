#pragma once

#include <string>
#include <vector>

#include "assay/compare/pairs/pair.h"
#include "assay/compare/rules/rules.h"
#include "assay/dumps/layout/merge.h"

namespace assay {

/// All tensors of a side; of which operator, a rule may know better than the recorder.
std::vector<LogicalTensor> tensors_of(const Dump&, const Rules&, bool is_actual);

/// One array on each side that has no name but its file's: the two are meant to be compared, whatever the
/// files are called. The actual one becomes what the reference's is; returns the note that says so, else "".
std::string match_lone_arrays(const Dump& actual, std::vector<LogicalTensor>& actual_tensors,
                              const Dump& reference, const std::vector<LogicalTensor>& reference_tensors);

/// Pairs in the reference's execution order; what only the actual side has follows the tensor it followed
/// there. Both must outlive the result.
/// @throws Error if rules give two tensors of the actual side the name of one of the reference
std::vector<Pair> match(const std::vector<LogicalTensor>& actual, const std::vector<LogicalTensor>& reference,
                        const Rules&);

/// What judging a pair reads: all copies of both sides; 0 where one is missing.
double bytes_of(const Pair&);

}  // namespace assay
