#pragma once

#include <optional>
#include <string>
#include <vector>

#include "assay/compare/causes/optimizer/step_origin.h"
#include "assay/compare/pairs/pair.h"
#include "assay/compare/result/finding.h"

namespace assay {

/// Two sides that step by different optimizers, as their states say, or the manifest of a side that keeps
/// none.
struct OtherOptimizer {
  std::string actual, reference;  ///< "SGD", "torch-adamw,weight_decay=0.1"
};
std::optional<OtherOptimizer> other_optimizer(const Sides&);

/// One failure, in the first parameter that is stepped; the others follow from it.
StepOrigins explain_other_optimizer(std::vector<Finding>&, const std::vector<Pair>&, const OtherOptimizer&);

}  // namespace assay
