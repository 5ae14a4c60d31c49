#pragma once

#include <span>
#include <string_view>

#include "assay/operators/engine/golden.h"

namespace assay {

/// Whether an output of an operator that chooses among the elements of x (its other output is their index)
/// is right for another order of equal elements: indices of elements with the golden values, none twice, and
/// gradients that equal elements have in another order. False where an attribute promises which of them
/// comes first (stable, select_last_index), where all share (ties even), and for operators that choose by
/// scores of their own.
/// @param actual  the index, or the gradient of x
bool is_legal_tie(const Operator&, std::string_view output, const Tensor& actual,
                  std::span<const NamedTensor> inputs, const Attributes&);

}  // namespace assay
