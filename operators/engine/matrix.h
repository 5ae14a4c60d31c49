#pragma once

#include <cstdint>
#include <type_traits>
#include <vector>

#include "assay/golden/arithmetic.h"
#include "assay/golden/parallel.h"

namespace assay {

/// In C order.
template <class T>
struct Matrix {
  std::int64_t rows = 0, columns = 0;
  std::vector<T> values;
  Matrix(std::int64_t r, std::int64_t c)
      : rows(r), columns(c), values(static_cast<std::size_t>(r * c), T(0)) {}
  T& operator()(std::int64_t i, std::int64_t k) { return values[static_cast<std::size_t>(i * columns + k)]; }
  const T& operator()(std::int64_t i, std::int64_t k) const {
    return values[static_cast<std::size_t>(i * columns + k)];
  }
};

template <class T>
Matrix<T> transposed(const Matrix<T>& x) {
  Matrix<T> y(x.columns, x.rows);
  for (std::int64_t i = 0; i < x.rows; ++i) {
    for (std::int64_t k = 0; k < x.columns; ++k) y(k, i) = x(i, k);
  }
  return y;
}

template <class T>
Matrix<T> product(const Matrix<T>& a, const Matrix<T>& b) {
  Matrix<T> y(a.rows, b.columns);
  const bool in_order = std::is_floating_point_v<T> && SummationScope::current() == nullptr;
  each_in_parallel(y.rows, grain_of(2 * a.columns * b.columns), [&](std::int64_t i) {
    if (in_order) {  // the same sums, row after row of b
      for (std::int64_t j = 0; j < a.columns; ++j) {
        for (std::int64_t k = 0; k < y.columns; ++k) y(i, k) += a(i, j) * b(j, k);
      }
      return;
    }
    for (std::int64_t k = 0; k < y.columns; ++k)
      y(i, k) = sum<T>(a.columns, [&](auto j) { return a(i, j) * b(j, k); });
  });
  return y;
}

}  // namespace assay
