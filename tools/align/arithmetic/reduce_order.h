#pragma once

#include <cstdint>
#include <span>

#include "assay/golden/tensor.h"

namespace assay::align {

/// In which order the parts of a sum are added: one after the other by rank; as a ring does, in which chunk k
/// of the elements begins at rank k + 1 and ends at rank k; or in pairs of neighbours.
enum class ReduceOrder : std::uint8_t { ranks, ring, tree };

/// When a sum of 16-bit parts is rounded to their dtype. each: behind every addition, as an all-reduce of
/// NCCL and PyTorch's autograd do. once: behind a float32 sum, as Megatron-LM's
/// reduce_scatter_with_fp32_accumulation.
enum class RoundSum : std::uint8_t { each, once };

/// The sum of tensors of one shape: float32 and float64 in the arithmetic of their dtype, bfloat16 and
/// float16 in float32.
/// @throws Error  for another dtype, and if shapes or dtypes differ
Tensor add_in_order(std::span<const Tensor> parts, ReduceOrder, RoundSum = RoundSum::each);

}  // namespace assay::align
