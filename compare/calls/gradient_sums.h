#pragma once

#include <optional>
#include <string>

#include "assay/compare/calls/wires.h"

namespace assay {

/// Checks a gradient that is a sum of recorded gradients: a parameter's gradient is the sum of its
/// `.unreduced` shares, and the gradient of a value is the sum over all its uses. Returns nothing if the sum
/// holds to within the rounding of each addition and each term, or if it does not hold in the reference
/// either; else a sentence that names the terms.
std::optional<std::string> broken_sum(const Sides&, const Wires&, const LogicalTensor& reference,
                                      const LogicalTensor& actual);

}  // namespace assay
