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

/// sum + correction approximates the dot product; magnitude is the sum of |a_k b_k|, rounded.
struct DoubleDoubleDot {
  double sum = 0, correction = 0, magnitude = 0;
};
/// Additions beyond n that one call may make to join its lanes.
inline constexpr std::size_t max_lanes = 256;
void add_dot(const float* a, const float* b, std::size_t n, DoubleDoubleDot& dot);

}  // namespace assay
