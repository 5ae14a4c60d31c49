#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "assay/compare/pairs/pair.h"
#include "assay/compare/result/finding.h"

namespace assay {

/// The judgement of one result of an optimizer: the optimizer of the reference is applied to the recorded
/// gradient, states and parameter of the actual side.
struct StepOrigin {
  double ratio = 0;  ///< largest error / allowed: at most 1 if this side took the same step
  std::string how;
  std::optional<std::size_t> root;  ///< the finding that reports the same mistake
  bool is_right() const { return !root && ratio <= 1; }
};
using StepOrigins = std::map<std::size_t, StepOrigin>;  ///< by finding

/// Judges the step of every parameter by itself. The settings of the optimizer, which dumps do not hold, are
/// those that reproduce the recording of the reference within rounding; if none do, no step is judged.
/// A mistake that several parameters or steps share is one failure, in Finding::diagnoses of the first
/// finding, which fails even if its difference is within the rule.
/// @param pairs  the pairs of the first findings, in order
StepOrigins find_optimizer_faults(std::vector<Finding>& findings, const std::vector<Pair>& pairs,
                                  const Sides&);

}  // namespace assay
