#pragma once

#include <cstddef>
#include <map>

#include "assay/compare/causes/optimizer/parameter_steps.h"
#include "assay/compare/causes/optimizer/step_rule.h"

namespace assay {

using StepRules = std::map<const ParameterStep*, StepRule>;

/// Sets the weight decay of each parameter: its own, where result number k of the reference shows it.
void solve_decays(StepRules&, std::size_t k, const StepSetting& decay);

}  // namespace assay
