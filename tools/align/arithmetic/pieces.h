#pragma once

#include <span>
#include <vector>

#include "assay/golden/tensor.h"

/// Tensors cut and put together along one dimension.
namespace assay::align {

/// Positions [begin, end) along dim.
Tensor piece(const Tensor&, std::size_t dim, std::int64_t begin, std::int64_t end);
/// These along the first dimension, in this order.
Tensor selected_rows(const Tensor&, std::span<const std::int64_t> rows);
/// Piece k of n equal ones. Throws Error if they are not equal.
Tensor piece_of(const Tensor&, std::size_t dim, std::int64_t k, std::int64_t n);
/// One behind the other along dim; of one dtype. Throws Error if other extents differ.
Tensor joined(std::span<const Tensor>, std::size_t dim);

/// These rows of a matrix with so many columns, in this order.
std::vector<std::int64_t> selected_rows(std::span<const std::int64_t> matrix, std::int64_t columns,
                                        std::span<const std::int64_t> rows);
/// Where each place of a permutation went.
std::vector<std::int64_t> inverse(std::span<const std::int64_t> permutation);

}  // namespace assay::align
