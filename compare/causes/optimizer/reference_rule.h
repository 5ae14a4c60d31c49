#pragma once

#include <map>
#include <string>
#include <utility>

#include "assay/compare/causes/optimizer/clip_limit.h"
#include "assay/compare/causes/optimizer/step_rule.h"

namespace assay {

/// The rules that the recording of the reference shows: those that make its steps of its own inputs, within
/// the bound. A parameter without one is not judged.
struct ReferenceRules {
  std::map<std::pair<std::string, std::int64_t>, StepRule> of;  ///< by parameter and step
  ClipLimit limit;

  const StepRule* find(const ParameterStep& s) const {
    const auto at = of.find({s.name(), s.step});
    return at == of.end() ? nullptr : &at->second;
  }
};

/// @param norms  of the reference's gradients, by step
ReferenceRules reference_rules(const RecordedSteps&, const std::map<std::int64_t, KnownNorm>& norms);

}  // namespace assay
