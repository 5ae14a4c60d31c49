#pragma once

#include <span>

#include "assay/operators/engine/matrix.h"

/// The odd polynomial a X + b X X^T X + c (X X^T)^2 X, step after step: it moves all singular values of X
/// towards 1 and leaves the singular vectors. K. Jordan, "Muon" (2024).
namespace assay {

/// p(s) = a s + b s^3 + c s^5 on the singular values.
struct Quintic {
  double a, b, c;
  double operator()(double s) const { return s * (a + s * s * (b + c * s * s)); }
};

/// The same in Bound, of x / divisor. Errors of elements, added up through the products of every step, would
/// grow by 30 a step; the derivative of the whole does not (newton_schulz.cpp).
Matrix<Bound> newton_schulz_bound(const Matrix<Bound>& x, const Bound& divisor,
                                  std::span<const Quintic> steps);

/// @param x  no more rows than columns
/// @param divisor  no less than the norm of x
template <class T>
Matrix<T> newton_schulz(Matrix<T> x, const T& divisor, std::span<const Quintic> steps) {
  if constexpr (std::is_same_v<T, Bound>) {
    return newton_schulz_bound(x, divisor, steps);
  } else {
    for (T& v : x.values) v /= divisor;
    for (const Quintic& p : steps) {
      const T a = constant<T>(p.a), b = constant<T>(p.b), c = constant<T>(p.c);
      const Matrix<T> gram = product(x, transposed(x));
      Matrix<T> polynomial = product(gram, gram);
      for (std::size_t i = 0; i < gram.values.size(); ++i)
        polynomial.values[i] = b * gram.values[i] + c * polynomial.values[i];
      const Matrix<T> change = product(polynomial, x);
      for (std::size_t i = 0; i < x.values.size(); ++i) x.values[i] = a * x.values[i] + change.values[i];
    }
    return x;
  }
}

}  // namespace assay
