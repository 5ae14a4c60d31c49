#pragma once

#include <cstdint>
#include <span>

namespace assay {

/// A float32 matrix as it lies in memory: row-major, or the transpose of a row-major one.
struct MatrixView {
  const float* data = nullptr;
  std::int64_t rows = 0, columns = 0;
  std::int64_t leading_dimension = 0;  ///< elements from one stored row to the next
  bool transposed = false;             ///< element (i, j) is data[j * leading_dimension + i]

  float operator()(std::int64_t i, std::int64_t j) const {
    return transposed ? data[j * leading_dimension + i] : data[i * leading_dimension + j];
  }
};

/// How many elements of a product were proven right by which step; the sum is the product's size.
/// The steps depend on OpenBLAS's order of additions, so the counts may differ between machines and thread
/// counts in a few elements. The product never does.
struct Certificate {
  std::int64_t exact = 0;                   ///< float64 held every partial sum: rounded once, to float32
  std::int64_t certified = 0;               ///< every number within the error bound rounds alike
  std::int64_t repaired_double_double = 0;  ///< the same, for a sum in double-double
  std::int64_t repaired_exact = 0;          ///< what is left of ties and near-ties; infinities and NaN

  Certificate& operator+=(const Certificate&);
};

/// y = a b, every element rounded once from its exact value to float32 (nearest even; overflow to infinity):
/// the bits do not depend on thread count, instruction set or BLAS version. A sum of zero is +0, as is an
/// empty one. Infinities and NaN give what IEEE 754 gives in any order of the sum; a NaN is 0x7fc00000.
/// float16 and bfloat16 matrices come widened; their products are mostly `exact`.
/// The floating-point environment is the default one: nearest even, subnormals kept.
///
/// OpenBLAS is called from `threads` threads of our own: its global thread count is 1 meanwhile, then what
/// it was. A thread holds some 16 MiB of float64 blocks, whatever the size of the matrices.
///
/// @param a  M x K
/// @param b  K x N
/// @param y  M x N, row-major and dense; must not overlap a or b
/// Throws Error if shapes do not fit each other or a view does not fit its leading dimension.
Certificate certified_matmul(const MatrixView& a, const MatrixView& b, std::span<float> y, int threads = 1);

}  // namespace assay
