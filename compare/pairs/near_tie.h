#pragma once

#include <optional>
#include <string>
#include <vector>

#include "assay/compare/pairs/tensors_by_id.h"
#include "assay/compare/rules/policy.h"
#include "assay/golden/tensor.h"

namespace assay {

/// The scores by which a router ranked the experts.
struct RouterScores {
  Tensor logits;             ///< [.., T, E]
  std::vector<double> bias;  ///< [E]; empty: none recorded
};
/// Returns the scores that were recorded beside the indices of a choice; nothing if `id` is no choice or has
/// no logits.
std::optional<RouterScores> router_scores(Identity id, const Dump&, const TensorsById&);

/// Two runs of a router may choose different experts if two scores are nearly equal. This is rounding, not a
/// fault. Returns a sentence with the gap between the reference's scores of the swapped experts, and whether
/// `row`, the tolerance of the logits, explains the gap. The scores are the logits, or their softmax, sigmoid
/// or softmax plus the expert bias (arXiv:2408.15664), whichever reproduces the choices of the reference.
/// Returns "" if none does, or if the shapes do not fit.
/// @param actual_indices, reference_indices  [.., T, K], in any order within a token
/// @param recorded  the scores of the reference
std::string explain_choices(const Tensor& actual_indices, const Tensor& reference_indices,
                            const RouterScores& recorded, const Row& row);

}  // namespace assay
