#pragma once

#include <optional>
#include <string>
#include <vector>

#include "assay/compare/pairs/tensors_by_id.h"
#include "assay/compare/rules/policy.h"
#include "assay/golden/tensor.h"

namespace assay {

/// What a router ranked the experts by.
struct RouterScores {
  Tensor logits;             ///< [.., T, E]
  std::vector<double> bias;  ///< [E]; empty: none recorded
};
/// What was recorded beside the indices of a choice; nothing where `id` is none, or no logits were recorded.
std::optional<RouterScores> router_scores(Identity id, const Dump&, const TensorsById&);

/// Two runs of a router may choose different experts where two scores are nearly equal; that is rounding, not
/// a fault. Says how far apart the reference's own scores are of the experts that were swapped, and whether
/// `row`, which allows the logits to be off, explains it. The scoring is the one of these that reproduces the
/// reference's choices: logits or their softmax, sigmoid or softmax plus the expert bias (arXiv:2408.15664).
/// "" if none does, or if the shapes do not fit.
/// @param actual_indices, reference_indices  [.., T, K] on both sides, in any order within a token
/// @param recorded  the reference's
std::string explain_choices(const Tensor& actual_indices, const Tensor& reference_indices,
                            const RouterScores& recorded, const Row& row);

}  // namespace assay
