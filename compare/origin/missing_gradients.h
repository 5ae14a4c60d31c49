#pragma once

#include <vector>

#include "assay/compare/pairs/pair.h"
#include "assay/compare/result/finding.h"

namespace assay {

/// Fails the gradient of a parameter that the actual side lacks though it has the parameter, a result of its
/// module and the gradients of others: it is frozen, or cut off from the loss.
/// @param pairs  those of the first findings, in order
void fail_missing_gradients(std::vector<Finding>& findings, const std::vector<Pair>& pairs);
bool is_missing_gradient(const Finding&);

}  // namespace assay
