#pragma once

#include "assay/operators/engine/golden.h"

namespace assay::align {

/// linear and grouped_matmul with transpose_weight, of float8_e4m3fn codes (DeepSeek-V3 arXiv:2412.19437,
/// sec. 3.3.2): activations and gradients have a scale for 128 elements along the summed dimension, weights
/// for 128 x 128. Forward: x and w. Gradient by x: grad_y and w. By w: grad_y, and x as the codes of the
/// forward are read back and quantized again along the tokens (sec. 3.5.2), those of each expert for
/// themselves. Each block is summed in float32, scaled and added.
std::vector<NamedTensor> fp8_matmul(const Operator&, std::span<const NamedTensor> inputs, const Attributes&);

}  // namespace assay::align
