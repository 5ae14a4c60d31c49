#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "assay/compare/result/finding.h"

namespace assay {

/// NaN and infinities that the reference does not have there, nor a narrower dtype makes of its numbers.
bool has_new_nonfinite(const Finding&);

/// Which of its inputs has them already, if it has: what is computed of NaN says nothing of how.
std::optional<std::size_t> nonfinite_source(const std::vector<Finding>&, std::size_t i,
                                            const std::vector<std::size_t>& inputs);

/// Says of failures that nothing else explains whether NaN and Inf begin in them. No value is one's own by
/// being no number.
/// @param findings  in execution order
void explain_nonfinite(std::vector<Finding>& findings);

}  // namespace assay
