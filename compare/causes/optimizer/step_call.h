#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "assay/compare/calls/call_judge.h"
#include "assay/compare/causes/optimizer/step_rule.h"
#include "assay/compare/causes/values/least_squares.h"

namespace assay {

/// Which elements are looked at.
enum class Elements : std::uint8_t {
  all,
  until_wrong,  ///< as far as the first that is outside
  some          ///< a sample
};

/// The recorded result against that of the call. Every element is held to the bound of the operator.
StepErrors step_errors(const StepTensors&, const StepRule&, std::size_t result, Elements = Elements::all);
/// Of several results, for little more than of one.
std::vector<StepErrors> step_errors(const StepTensors&, const StepRule&,
                                    const std::vector<std::size_t>& results, Elements);

/// Solves settings from a recorded result, in a sample of its elements: Gauss and Newton, which is exact for
/// what the result is linear in. A number is short where a short one is within its reach.
struct StepFit {
  StepRule rule;
  std::vector<Estimate> numbers;
};
std::optional<StepFit> fit_step(const StepTensors&, const StepRule& start, std::size_t result,
                                const std::vector<StepSetting>&);

}  // namespace assay
