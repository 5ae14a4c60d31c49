#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "assay/compare/pairs/pair.h"
#include "assay/compare/result/finding.h"

namespace assay {

/// What the reference's optimizer, on the actual side's own recorded gradient, states and parameter, says of
/// one of its results.
struct StepOrigin {
  double ratio = 0;  ///< largest error / allowed: at most 1 where this side took the same step
  std::string how;
  std::optional<std::size_t> root;  ///< the finding that reports the mistake which this one shows, too
};
using StepOrigins = std::map<std::size_t, StepOrigin>;  ///< by finding

/// Judges every parameter's step by itself. The optimizer's numbers, which dumps do not hold, are those with
/// which the reference's own recording is reproduced within rounding; where none do, nothing is said. A
/// mistake that many parameters share, or several steps, is one failure: Finding::diagnoses of the first, who
/// fails even where its difference is within the rule. Kinds: "weight_decay", "l2_decay", "bias_correction",
/// "epsilon", "betas", "learning_rate", "sign", "clip", "norm", "not_updated", "stale".
/// @param pairs  of findings[i], for as many as there are
StepOrigins find_optimizer_faults(std::vector<Finding>& findings, const std::vector<Pair>& pairs,
                                  const Sides&);

/// Whether a diagnosis is one of these.
bool is_of_optimizer(const Diagnosis&);

}  // namespace assay
