#pragma once

#include <array>
#include <cstdint>

#include "assay/golden/tensor.h"
#include "assay/operators/engine/operator.h"

namespace assay::align {

/// Cosines and sines [1, length, size] that a call of rope with these attributes turns by, as Hugging Face's
/// modules hand them from layer to layer: those of the size / 2 pairs, twice.
/// @param dtype  that they are rounded to
std::array<Tensor, 2> rotary_tables(const Attributes& of_rope, std::int64_t length, std::int64_t size,
                                    DType dtype);

}  // namespace assay::align
