#pragma once

#include <span>
#include <string>

#include "assay/compare/policy.h"
#include "assay/golden/tensor.h"

namespace assay {

/// Two runs of a router may choose different experts where two scores are nearly equal; that is rounding, not
/// a fault. Says how far apart the reference's own scores are of the experts that were swapped, and whether
/// `row`, which allows the logits to be off, explains it. The scoring is the one of these that reproduces the
/// reference's choices: logits or their softmax, sigmoid or softmax plus the expert bias (arXiv:2408.15664).
/// "" if none does, or if the shapes do not fit.
/// @param indices  [.., T, K] on both sides, in any order within a token
/// @param logits   [.., T, E], the reference's
/// @param bias     [E]; empty: none recorded
std::string explain_choices(const Tensor& actual_indices, const Tensor& reference_indices,
                            const Tensor& logits, std::span<const double> bias, const Row& row);

}  // namespace assay
