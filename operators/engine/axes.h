#pragma once

#include <cstdint>
#include <vector>

#include "assay/operators/engine/operator.h"

/// Axes as PyTorch counts them, for operators that take a `dim` or broadcast.
namespace assay {

/// The axis that `dim` means among `rank`: -1 is the last; a scalar has the axes 0 and -1, both meaning 0.
/// @throws Error  outside -rank .. rank-1
std::size_t axis(std::int64_t dim, std::size_t rank);

/// Splits a shape at `dim`: A* before it, C* its one extent (none for a scalar), B* behind.
void bind_axis(Dims&, const Shape& x, std::int64_t dim);

/// Which axes a list of dims means; no dims mean all of them. Throws Error for one that is named twice.
std::vector<bool> axes(const std::vector<std::int64_t>& dims, std::size_t rank);

/// Flat C-order positions within `shape` of all indices over the chosen axes, the others at 0.
std::vector<std::int64_t> positions(const Shape& shape, const std::vector<bool>& chosen);

/// The shape that both broadcast to, NumPy's rule. Throws Error if they do not.
Shape broadcast(const Shape& a, const Shape& b);

/// The dimension of `result` that each of `from` is, counted from the back; not_in_result where it is
/// repeated.
Shape broadcast_dims(const Shape& from, const Shape& result);

/// For every element of `result` in C order, the position in `from` that it is broadcast from.
std::vector<std::int64_t> broadcast_positions(const Shape& from, const Shape& result);

}  // namespace assay
