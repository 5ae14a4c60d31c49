#pragma once

#include <string>

#include "assay/align/placement/machine.h"

namespace assay::align {

/// Causal attention over whole sequences, of which each rank has its tokens.
/// @param q, k, v  [sequences, heads, tokens here, size]
Value attend_in_parallel(Machine&, const std::string& module, const Value& q, const Value& k, const Value& v,
                         double scale);

}  // namespace assay::align
