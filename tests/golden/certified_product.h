#pragma once

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "assay/golden/certified_matmul.h"

/// Matrices for certified_matmul, and its product of them.
namespace assay {

inline constexpr float inf = std::numeric_limits<float>::infinity(),
                       nan = std::numeric_limits<float>::quiet_NaN();

using Random = std::mt19937_64;

inline double normal(Random& random) {
  return std::normal_distribution<double>()(random);
}

inline double any_exponent(Random& random) {
  return std::ldexp(normal(random), static_cast<int>(random() % 250) - 140);
}

/// A matrix with its memory; stored with two elements between the rows that belong to nobody.
struct Matrix {
  Matrix(std::int64_t rows, std::int64_t columns, bool transposed = false)
      : view{nullptr, rows, columns, (transposed ? rows : columns) + 2, transposed},
        values(static_cast<std::size_t>((transposed ? columns : rows) * view.leading_dimension), nan) {
    view.data = values.data();
  }
  Matrix(std::int64_t rows, std::int64_t columns, const std::vector<float>& row_major)
      : Matrix(rows, columns) {
    for (std::int64_t i = 0; i < rows; ++i)
      for (std::int64_t j = 0; j < columns; ++j)
        at(i, j) = row_major[static_cast<std::size_t>(i * columns + j)];
  }
  Matrix(const Matrix&) = delete;
  Matrix& operator=(const Matrix&) = delete;
  float& at(std::int64_t i, std::int64_t j) {
    if (view.transposed) std::swap(i, j);
    return values[static_cast<std::size_t>(i * view.leading_dimension + j)];
  }
  template <class F>
  void fill(F f) {
    for (std::int64_t i = 0; i < view.rows; ++i)
      for (std::int64_t j = 0; j < view.columns; ++j) at(i, j) = static_cast<float>(f(i, j));
  }
  MatrixView view;
  std::vector<float> values;
};

struct Product {
  std::vector<float> y;
  Certificate certificate;
};

inline Product multiply(const Matrix& a, const Matrix& b, int threads = 1) {
  // A value that no test expects stands for "not written".
  Product p{std::vector<float>(static_cast<std::size_t>(a.view.rows * b.view.columns), 12345.678f), {}};
  p.certificate = certified_matmul(a.view, b.view, p.y, threads);
  const Certificate& c = p.certificate;
  EXPECT_EQ(c.exact + c.certified + c.repaired_double_double + c.repaired_exact,
            static_cast<std::int64_t>(p.y.size()));
  return p;
}

inline std::uint32_t bits(float x) {
  return std::bit_cast<std::uint32_t>(x);
}

}  // namespace assay
