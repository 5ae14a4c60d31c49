#pragma once

#include <cstddef>
#include <cstdint>

/// The vector loops of certified_matmul, each compiled for every instruction set and chosen at run time.
/// A line is a row of a or a column of b: what a dot product takes.
namespace assay {

/// What is gathered about a line while it is widened.
struct LineSums {
  double* squares;        ///< sum of x^2, NaN and infinity included
  std::uint32_t* lowest;  ///< smallest place value of a set bit, as the bits of a float32, minus 1
};
inline constexpr std::uint32_t no_bit_set = 0xffffffff;  ///< of LineSums::lowest: all were zero

/// float32 to float64. Each stored row is (part of) a line; sums are added to.
void widen_rows(const float* in, std::size_t in_stride, std::size_t rows, std::size_t columns, double* out,
                std::size_t out_stride, const LineSums& sums);
/// The same where each stored column is (part of) a line.
void widen_columns(const float* in, std::size_t in_stride, std::size_t rows, std::size_t columns, double* out,
                   std::size_t out_stride, const LineSums& sums);

struct RowCounts {
  std::size_t exact, doubtful;
};
/// Rounds c[j] to y[j] where every number within error * norms[j] of it rounds alike; exact (no error) where
/// units[j] <= limit. The other j go to `doubtful`, which has room for n.
RowCounts round_row(const double* c, std::size_t n, double error, const double* norms, double limit,
                    const double* units, float* y, std::uint32_t* doubtful);

/// sum + correction approximates a dot product.
struct DoubleDoubleDot {
  double sum = 0, correction = 0;
};
/// Adds n products. With 2^x >= the sum of all |a_k b_k| of the dot product, `anchor` is 1.5 2^(x + 2): every
/// sum then lies in the anchor's binade. No more than n + 2 max_lanes terms are added to each of the two.
void add_dot(const float* a, const float* b, std::size_t n, double anchor, DoubleDoubleDot& dot);
inline constexpr std::size_t max_lanes = 256;

}  // namespace assay
