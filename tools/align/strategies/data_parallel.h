#pragma once

#include "assay/align/placement/planned_parameter.h"
#include "assay/align/ranks/ranks.h"

namespace assay::align {

/// The whole gradient of this rank's piece of a parameter, from its share of the step's sum. Open.
/// @param but  axes along which it is not to be summed: the shares there have been already
Tensor sum_gradient(const Ranks&, const std::string& name, const PlannedParameter&, const Tensor& open,
                    const std::vector<Axis>& but = {});

/// The ranks of this one's pipeline that hold the parameter.
std::vector<int> holders_of(const Mesh&, const PlannedParameter&);

/// Whether this rank's piece counts in a sum over all ranks, so that each element counts once.
/// @param distinct  axes along which the ranks have different pieces though the parameter is not cut there
bool counts_once(const Mesh&, const PlannedParameter&, bool of_experts,
                 const std::vector<Axis>& distinct = {});

}  // namespace assay::align
