#pragma once

#include <map>
#include <vector>

#include "assay/compare/flow/flow.h"
#include "assay/compare/pairs/pair.h"
#include "assay/compare/result/finding.h"

namespace assay {

/// By finding.
using RightValues = std::map<std::size_t, RightValue>;

/// Explains the failures that were not inherited, in execution order, by diagnosis.h and by other recorded
/// tensors: another attribute or a narrower input of the operator, a tensor of another step or micro-batch,
/// an added multiple of another tensor (bias, weight decay, an old gradient). Fills Finding::diagnoses.
/// @param pairs  the pairs of the first findings, in order
/// @param right  what a tensor should be by what the actual side made it of, where that is known: the
///               reference has other roundings before it
/// What is undecided and was not judged fails if a mistake makes it, and what runs after it follows from it.
void find_causes(std::vector<Finding>& findings, const std::vector<Pair>& pairs, const Sides&,
                 const RightValues& right);

}  // namespace assay
