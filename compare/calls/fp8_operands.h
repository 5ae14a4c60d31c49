#pragma once

#include <string>
#include <vector>

#include "assay/compare/calls/call_variant.h"
#include "assay/compare/calls/partial_sums.h"

namespace assay {

/// Replaces the operands of `output` by their values after fp8 quantization, as DeepSeek-V3 does it
/// (arXiv:2412.19437 sec. 3.3.2, 3.5.2). Activations and gradients have one scale per 128 elements along the
/// summed dimension, weights one per 128 x 128. For the gradient by w, the quantized x of the forward pass is
/// quantized again along the tokens, separately for each expert. Every rank has its own blocks: no block
/// crosses a cut of a row or a weight.
/// @param tokens  `unknown` leaves operands with blocks along the tokens unchanged
void take_fp8(const std::string& output, std::vector<NamedTensor>& inputs, const std::vector<CutInput>& cuts,
              TokenBlocks tokens);

}  // namespace assay
