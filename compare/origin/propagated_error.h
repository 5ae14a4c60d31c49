#pragma once

#include <optional>
#include <vector>

#include "assay/compare/pairs/pair.h"

namespace assay {

/// By how much a result is off beside what it was computed from.
struct PropagatedError {
  double error = 0, given = 0;  ///< relative L2 of the result, and the largest of an input
  double ratio = 0;             ///< error / what the inputs explain
};

/// For operators that no replay knows. Nothing where the result is off by more than twice its inputs, in the
/// whole or in a row of the last dimension (without rows: in an element) beside the usual size of one; where
/// a value is no number on one side, or a tensor cannot be read: then something was added here. A product of
/// two that are off alike is off by twice as much, relative to itself.
std::optional<PropagatedError> propagated_error(const Sides&, const Pair& result, const std::vector<Pair>& inputs);

}  // namespace assay
