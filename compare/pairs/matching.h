#pragma once

#include <string>
#include <vector>

#include "assay/compare/pairs/pair.h"
#include "assay/compare/rules/rules.h"
#include "assay/dumps/layout/merge.h"

namespace assay {

/// A rule may name another operator of a tensor than the recorder did.
void take_operators(std::vector<LogicalTensor>&, const Rules&);

/// Matches single arrays that have no name but that of their file, if each side has one: they are compared
/// although the names of the files differ. The actual array takes the identity of the reference array.
/// Returns a note about it, else "".
std::string match_lone_arrays(const Dump& actual, std::vector<LogicalTensor>& actual_tensors,
                              const Dump& reference, const std::vector<LogicalTensor>& reference_tensors);

/// Returns the pairs in the execution order of the reference. A tensor of the actual side alone follows its
/// predecessor on that side. Both arguments must outlive the result.
std::vector<Pair> match(const std::vector<LogicalTensor>& actual,
                        const std::vector<LogicalTensor>& reference);

/// The number of bytes that judging the pair reads: all copies on both sides; 0 if a side is missing.
double bytes_of(const Pair&);

}  // namespace assay
