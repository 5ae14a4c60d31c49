#pragma once

#include <vector>

#include "assay/compare/pairs/pair.h"
#include "assay/compare/pairs/tensors_by_id.h"
#include "assay/compare/result/finding.h"

namespace assay {

/// Explains the failures that were not inherited, the first in execution order, by diagnosis.h and by what
/// else was recorded: another attribute or a narrower input of the operator, a tensor of another step or
/// micro-batch, a multiple of another tensor that was added (bias, weight decay, an old gradient). Fills
/// Finding::diagnoses.
/// @param pairs  of findings[i], for as many as there are
void find_causes(std::vector<Finding>& findings, const std::vector<Pair>& pairs, const Sides&,
                 const TensorsById& reference);

}  // namespace assay
