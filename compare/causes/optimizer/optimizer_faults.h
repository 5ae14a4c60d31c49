#pragma once

#include <vector>

#include "assay/compare/causes/optimizer/step_origin.h"
#include "assay/compare/pairs/pair.h"
#include "assay/compare/result/finding.h"

namespace assay {

/// Judges the step of every parameter by itself. The settings of the optimizer, which dumps do not hold, are
/// those that reproduce the recording of the reference within rounding; if none do, no step is judged.
/// A mistake that several parameters or steps share is one failure, in Finding::diagnoses of the first
/// finding, which fails even if its difference is within the rule.
/// @param pairs   the pairs of the first findings, in order
/// @param beside  those that nobody asked for
StepOrigins find_optimizer_faults(std::vector<Finding>& findings, const std::vector<Pair>& pairs,
                                  const std::vector<Pair>& beside, const Sides&);

}  // namespace assay
