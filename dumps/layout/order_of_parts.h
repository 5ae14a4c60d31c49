#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "assay/golden/tensor.h"

namespace assay {

/// How n parts lie in a tensor that is cut in one dimension: one behind the other, or part r is the pieces r
/// and 2 n - 1 - r of 2 n, as causal context parallelism shares out its work.
enum class PartOrder : std::uint8_t { in_turn, zigzag };

/// The order in which the parts are the whole, bit for bit; nothing if neither is.
std::optional<PartOrder> order_of_parts(std::span<const Tensor> parts, const Tensor& whole, int dim);

/// Whether part r is the piece r of each half of the whole, as tensor parallelism cuts a weight that is gate
/// and up, one behind the other: the parts are half as far from it so as in turn, or nearer.
bool are_cut_by_halves(std::span<const Tensor> parts, const Tensor& whole, int dim);

}  // namespace assay
