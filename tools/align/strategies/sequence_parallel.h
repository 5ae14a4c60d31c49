#pragma once

#include <string>

#include "assay/align/placement/machine.h"

namespace assay::align {

/// All tokens, where a region of tensor parallel begins.
Value gather_sequence(Machine&, const std::string& module, const Value& x);
/// The rank's tokens of the sum, where it ends.
Value scatter_sequence(Machine&, const std::string& module, const Value& partial_sum);

}  // namespace assay::align
