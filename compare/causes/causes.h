#pragma once

#include <vector>

#include "assay/compare/pairs/pair.h"
#include "assay/compare/pairs/tensors_by_id.h"
#include "assay/compare/result/finding.h"

namespace assay {

/// Explains the failures that were not inherited, in execution order, by diagnosis.h and by other recorded
/// tensors: another attribute or a narrower input of the operator, a tensor of another step or micro-batch,
/// an added multiple of another tensor (bias, weight decay, an old gradient). Fills Finding::diagnoses.
/// @param pairs  the pairs of the first findings, in order
void find_causes(std::vector<Finding>& findings, const std::vector<Pair>& pairs, const Sides&,
                 const TensorsById& reference);

}  // namespace assay
