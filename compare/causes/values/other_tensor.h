#pragma once

#include <optional>

#include "assay/compare/causes/values/failing_pair.h"

/// Explanations of a failing pair by another recorded tensor of the run.
namespace assay {

/// What it costs to say which of so many tensors it was.
double bits_of_choice(std::size_t tried);

/// Largest error / allowed with `other` in the reference's place; nothing unless it is the actual tensor.
/// @param other  of the pair's shape
/// @param tried  how many tensors could have been it
std::optional<double> equals(const FailingPair&, const TensorSource& other, std::size_t tried);

/// The same where each element over tolerance alone is that of `other`.
std::optional<double> equals_where_wrong(const FailingPair&, const TensorSource& other);

/// Pieces of a dimension that are those of `other`; the rest is right.
struct Pieces {
  std::string along;                    ///< "rows"
  std::int64_t of;                      ///< so many
  std::vector<std::int64_t> positions;  ///< which
};
std::optional<Pieces> pieces_of(const FailingPair&, const TensorSource& other, std::size_t tried);

/// Each wrong row is the reference's plus a row of the table: a lookup that was not masked.
/// @return  largest error / allowed
std::optional<double> added_rows(const FailingPair&, const TensorSource& table);

struct AddedTerm {
  double factor;
  double residual;  ///< largest error / allowed
};
/// actual = reference + factor x term; nothing if that does not hold.
/// @param term   of the pair's shape, or of its last extent: added to every row
/// @param tried  how many terms could have been added
/// @param sums   how many sums with it were stored, one behind the other
std::optional<AddedTerm> added_term(const FailingPair&, const TensorSource& term, std::size_t tried,
                                    double sums = 1);

}  // namespace assay
