#pragma once

#include <string>

#include "assay/align/placement/machine.h"

namespace assay::align {

/// The embedding [vocabulary, hidden] of tokens.
Value embed_in_parallel(Machine&, const std::string& module, const Value& tokens, std::int64_t vocabulary,
                        std::int64_t hidden);

/// The loss of each token; 0 where it has no target.
/// @param logits  [tokens, this rank's part of the vocabulary]
Value cross_entropy_in_parallel(Machine&, const std::string& module, const Value& logits,
                                const Value& targets, std::int64_t vocabulary);

}  // namespace assay::align
