#pragma once

#include <memory>

#include "assay/align/arithmetic/arithmetic.h"

namespace assay::align {

/// In which format an operator takes its tensors: as they are stored; rounded to the 16-bit format of the
/// precision; or as fp8 codes with a scale for each block (fp8_matmul.h). It computes in float32.
enum class Operands : std::uint8_t { stored, half, fp8_blocks };
/// In which format its first output is stored. Others (attention's lse) are float32.
enum class Result : std::uint8_t { half, float32, as_first_operand };

struct PrecisionRow {
  std::string_view op, module;  ///< globs
  Operands operands;
  Result result;
  std::string_view source;
};

/// What a call computes in: the first row of the precision's table that matches.
const PrecisionRow& precision_row(Precision, std::string_view op, std::string_view module);

/// bf16, fp16: TeleChat3's recipe, parameters and residual float32. fp8: DeepSeek-V3's matmuls, else bf16.
/// Tensors have the dtype they are stored in. A gradient has that of its tensor, but those of parameters stay
/// float32: a matmul's accumulators are added to them (Megatron-LM's gradient_accumulation_fusion). What
/// ranks send is in the dtype of the tensor: 16-bit activations and their gradients, float32 residuals and
/// gradients of parameters.
std::shared_ptr<const Arithmetic> mixed_precision(Precision, RoundSum);

}  // namespace assay::align
