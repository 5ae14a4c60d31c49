#pragma once

#include <string>
#include <vector>

#include "assay/align/placement/machine.h"

namespace assay::align {

/// Where in the sequence the tokens of this rank stand, in its order.
std::vector<std::int64_t> positions_of(const Mesh&, std::int64_t length);
/// And their rows among all of a micro-batch.
std::vector<std::int64_t> token_rows(const Mesh&, std::int64_t sequences, std::int64_t length);

/// Causal attention over whole sequences, of which each rank has its tokens.
/// @param q, k, v  [sequences, heads, tokens here, size]
Value attend_in_parallel(Machine&, const std::string& module, const Value& q, const Value& k, const Value& v,
                         double scale);

}  // namespace assay::align
