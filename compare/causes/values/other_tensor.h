#pragma once

#include <optional>

#include "assay/compare/causes/values/failing_pair.h"

/// Explanations of a failing pair by another recorded tensor of the run.
namespace assay {

/// Largest error / allowed with `other` in the reference's place; nothing unless it is the actual tensor.
/// @param other  of the pair's shape
/// @param tried  how many tensors could have been it
std::optional<double> equals(const FailingPair&, const TensorSource& other, std::size_t tried);

struct AddedTerm {
  double factor;
  double residual;  ///< largest error / allowed
};
/// actual = reference + factor x term; nothing if that does not hold.
/// @param term   of the pair's shape, or of its last extent: added to every row
/// @param tried  how many terms could have been added
std::optional<AddedTerm> added_term(const FailingPair&, const TensorSource& term, std::size_t tried);

}  // namespace assay
