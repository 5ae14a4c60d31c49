#pragma once

#include <string>
#include <vector>

#include "assay/compare/calls/call_variant.h"
#include "assay/compare/calls/partial_sums.h"

namespace assay {

/// linear and grouped_matmul: what DeepSeek-V3 computes in fp8.
bool has_fp8_operands(const Operator&);

/// The operands of `output` as their codes are read back. DeepSeek-V3 (arXiv:2412.19437 sec. 3.3.2, 3.5.2):
/// activations and gradients have a scale for 128 elements along the summed dimension, weights for 128 x 128;
/// for the gradient by w, x as the codes of the forward are read back is quantized again along the tokens,
/// those of each expert for themselves. A rank has blocks of its own: none crosses a cut of a row or a
/// weight.
/// @param tokens  `unknown`: those of blocks along the tokens stay as they were
void take_fp8(const std::string& output, std::vector<NamedTensor>& inputs, const std::vector<CutInput>& cuts,
              TokenBlocks tokens);

}  // namespace assay
