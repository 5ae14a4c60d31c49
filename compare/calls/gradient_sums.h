#pragma once

#include <optional>
#include <string>

#include "assay/compare/calls/wires.h"

namespace assay {

/// A gradient that is a sum of recorded ones: that of a parameter of its `.unreduced` shares, that of a value
/// of what all its uses handed back. Nothing if it is their sum to within the rounding of each addition and
/// of each term, or if that does not hold in the reference; else a sentence that names them.
std::optional<std::string> broken_sum(const Sides&, const Wires&, const LogicalTensor& reference,
                                      const LogicalTensor& actual);

}  // namespace assay
