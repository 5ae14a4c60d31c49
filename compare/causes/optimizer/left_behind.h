#pragma once

#include <vector>

#include "assay/compare/causes/optimizer/step_origin.h"
#include "assay/compare/pairs/pair.h"
#include "assay/compare/result/finding.h"

namespace assay {

/// Parameters that the reference's optimizer steps and the actual side's does not: it was not given them.
/// Their steps cannot be judged, as they have no states. Adds their diagnosis and where they come from.
void find_left_behind(std::vector<Finding>&, const std::vector<Pair>&, const Sides&, StepOrigins&);

}  // namespace assay
