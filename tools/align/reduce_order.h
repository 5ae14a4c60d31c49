#pragma once

#include <cstdint>
#include <span>

#include "assay/golden/tensor.h"

namespace assay::align {

/// In which order the parts of a sum are added: one after the other by rank; as a ring does, in which chunk k
/// of the elements begins at rank k + 1 and ends at rank k; or in pairs of neighbours.
enum class ReduceOrder : std::uint8_t { ranks, ring, tree };

/// The sum of tensors of one shape, in the arithmetic of their dtype: float32 or float64.
/// @throws Error  for another dtype, and if shapes or dtypes differ
Tensor add_in_order(std::span<const Tensor> parts, ReduceOrder);

}  // namespace assay::align
