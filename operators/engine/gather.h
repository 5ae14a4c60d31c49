#pragma once

#include "assay/operators/engine/axes.h"
#include "assay/operators/engine/copy.h"

/// torch.gather and torch.Tensor.scatter_add go along the same positions: those of x(i, index(i, j, k), k).
namespace assay {

/// For every element of `index` the position in x that it means; nowhere if it is outside of x.
Positions gather_positions(const Shape& x, const Shape& index_shape, std::span<const std::int64_t> index,
                           std::int64_t dim);

/// Sets "C", the extent of `dim` below which the indices stay, and "hits", the most that one element of x is
/// meant: where the indices are not known, all along dim.
/// @throws Error  unless index has as many dimensions as x and, but for dim, no larger extents
void bind_gather(Dims&, InputShapes, std::string_view op, std::int64_t dim);

}  // namespace assay
