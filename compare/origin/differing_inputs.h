#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "assay/compare/origin/inputs.h"
#include "assay/compare/origin/local_errors.h"
#include "assay/compare/pairs/pair.h"
#include "assay/compare/result/finding.h"

namespace assay {

/// Exempts finding `i`, which is right by its own inputs, where these passed or are exempt by rounding and
/// explain that it is outside of its rule: terms cancel, or a step is as long for a gradient that is next to
/// nothing. A result of a call is explained if both sides' lie no further apart than where their inputs
/// differed as much up or down at random, as roundings do: what pushes many terms to one side, as a mistake
/// does, makes more of their sum. Nor may an input differ by a factor or a constant of all elements. A step
/// of a parameter is as long for next to nothing; what else has no call of its own (copies, sums, calls
/// between modules) may be off by no more than propagated_error explains.
std::optional<Exemption> explained_by_inputs(const std::vector<Finding>&, const std::vector<Pair>&,
                                             std::size_t i, const Inputs&, LocalErrors&,
                                             const Exemption& right);

}  // namespace assay
