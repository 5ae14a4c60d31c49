#pragma once

#include <cstddef>
#include <span>

#include "assay/golden/bound.h"

/// A softmax where the error model is quick: several numbers at a time, of the same bits on every machine.
/// Its errors are no larger than those of Bound.
namespace assay {

/// Whether all values and errors are finite, as it takes them.
bool are_finite(std::span<const Bound>);

struct ExponentialSums {
  Bound all;
  Bound others;  ///< of e^x - 1 in the place of the largest, 0
};
/// Puts e^(score - largest) of each score in its place, where the largest is the value of scores[top].
ExponentialSums take_exponentials(std::span<Bound> scores, std::size_t top);

/// Divides each.
void divide_by(const Bound&, std::span<Bound>);

}  // namespace assay
