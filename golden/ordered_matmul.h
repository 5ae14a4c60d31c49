#pragma once

#include <cstdint>

namespace assay {

/// The element (i, j) is x[i row + j column]; a stride may be 0.
template <class T>
struct Strided {
  T* x = nullptr;
  std::int64_t row = 0, column = 0;
  T& operator()(std::int64_t i, std::int64_t j) const { return x[i * row + j * column]; }
  Strided transposed() const { return {x, column, row}; }
};

/// y(m, n) = 0 + a(m, 0) b(0, n) + a(m, 1) b(1, n) + .. + a(m, K - 1) b(K - 1, n) + last(m, n).
template <class T>
struct OrderedMatmul {
  std::int64_t M, N, K;
  Strided<const T> a, b;
  Strided<T> y;
  Strided<const T> last = {};   ///< without x: there is none
  bool exact_products = false;  ///< of all factors, so that a fused operation has the same bits
};

/// Every product and sum is rounded to T, from left to right: the bits are those of the plain loops. Twice as
/// fast in double where all factors are float32.
void multiply(const OrderedMatmul<float>&);
void multiply(const OrderedMatmul<double>&);

}  // namespace assay
