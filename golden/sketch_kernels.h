#pragma once

#include <cstddef>
#include <cstdint>

/// The vector loops of Sketcher, each compiled for every instruction set and chosen at run time. All of them
/// give the same bits: products with signs are exact, and sums have one order.
namespace assay {

/// Columns of signs are padded to a multiple of this with zeros.
inline constexpr std::size_t sign_lanes = 16;

/// w[r, j] = sum over c of x[r, c] signs[c, j], in the order of c.
/// @param stride  of the rows of x
/// @param lanes   of w and of signs, a multiple of sign_lanes
void project_rows(const double* x, std::size_t stride, std::size_t rows, std::size_t columns,
                  const double* signs, std::size_t lanes, double* w);

/// The sum over c of mixed(bits[c] ^ (row_key + keys[c])).
std::uint64_t print_row(const std::uint64_t* bits, std::size_t columns, std::uint64_t row_key,
                        const std::uint64_t* keys);

}  // namespace assay
