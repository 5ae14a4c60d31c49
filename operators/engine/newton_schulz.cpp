#include "assay/operators/engine/newton_schulz.h"

#include <algorithm>
#include <cmath>

// The error in the Frobenius norm. A step is the matrix function p of the singular values, so its derivative
// maps an error E, seen in the singular vectors of X, element by element: symmetric parts are multiplied by
// (p(s) - p(r)) / (s - r), antisymmetric ones by (p(s) + p(r)) / (s + r), for the singular values s of the
// row and r of the column (Noferini 2017, "A formula for the Frechet derivative of a generalized matrix
// function"). Those factors multiply over the steps, because the vectors stay. What is left of all that
// entered is bounded by its largest factor.
namespace assay {
namespace {

using Real = Matrix<double>;

double norm(const Real& x) {
  double squares = 0;
  for (const double v : x.values) squares += v * v;
  return std::sqrt(squares);
}

Real magnitudes(Real x) {
  for (double& v : x.values) v = std::abs(v);
  return x;
}

// Cyclic Jacobi (Golub and Van Loan 2013, sec. 8.5): off-diagonal elements vanish quadratically.
std::vector<double> eigenvalues(Real a) {
  constexpr int most_sweeps = 30;
  const double negligible = 0x1p-53 * norm(a);
  for (int sweep = 0; sweep < most_sweeps; ++sweep) {
    double largest = 0;
    for (std::int64_t p = 0; p < a.rows; ++p) {
      for (std::int64_t q = p + 1; q < a.rows; ++q) {
        largest = std::max(largest, std::abs(a(p, q)));
        if (!(std::abs(a(p, q)) > negligible)) continue;
        const double tau = (a(q, q) - a(p, p)) / (2 * a(p, q));
        const double tangent = std::copysign(1, tau) / (std::abs(tau) + std::hypot(1, tau));
        const double c = 1 / std::hypot(1, tangent), s = tangent * c;
        const auto rotate = [&](double& x, double& y) {
          const double old = x;
          x = c * old - s * y;
          y = s * old + c * y;
        };
        for (std::int64_t k = 0; k < a.rows; ++k) rotate(a(k, p), a(k, q));
        for (std::int64_t k = 0; k < a.rows; ++k) rotate(a(p, k), a(q, k));
      }
    }
    if (!(largest > negligible)) break;
  }
  std::vector<double> found;
  for (std::int64_t i = 0; i < a.rows; ++i) found.push_back(a(i, i));
  return found;
}

// (p(s) - p(r)) / (s - r), without the division.
double divided_difference(const Quintic& p, double s, double r) {
  const double s2 = s * s, r2 = r * r, sr = s * r;
  return p.a + p.b * (s2 + sr + r2) + p.c * (s2 * s2 + s2 * sr + s2 * r2 + sr * r2 + r2 * r2);
}

// One step: its factors on an error that comes in, and the norm of the error that it adds.
struct Step {
  std::vector<double> factors;
  double added;
};

// The largest factor from each step on, times what was added before it.
double propagated(double initial, const std::vector<Step>& steps) {
  if (steps.empty()) return initial;
  std::vector<double> factors(steps.front().factors.size(), 1);
  double total = 0;
  for (std::size_t k = steps.size(); k-- > 0;) {
    double largest = 0;
    for (const double f : factors) largest = worse(largest, std::abs(f));
    total += largest * steps[k].added;
    for (std::size_t i = 0; i < factors.size(); ++i) factors[i] *= steps[k].factors[i];
  }
  double largest = 0;
  for (const double f : factors) largest = worse(largest, std::abs(f));
  return total + largest * initial;
}

}  // namespace

Matrix<Bound> newton_schulz_bound(const Matrix<Bound>& given, std::span<const Quintic> polynomials) {
  const double u = ErrorScope::current().unit_roundoff, eta = ErrorScope::current().min_subnormal;
  const auto m = static_cast<double>(given.rows), n = static_cast<double>(given.columns);
  Real x(given.rows, given.columns);
  double squares = 0;
  for (std::size_t i = 0; i < x.values.size(); ++i) {
    x.values[i] = given.values[i].value;
    squares += given.values[i].error * given.values[i].error;
  }
  const double initial = std::sqrt(squares);
  std::vector<double> singular = eigenvalues(product(x, transposed(x)));
  for (double& s : singular) s = std::sqrt(std::max(s, 0.0));

  std::vector<Step> steps;
  for (const Quintic& p : polynomials) {
    const Real gram = product(x, transposed(x)), square = product(gram, gram);
    Real inner = gram;
    for (std::size_t i = 0; i < inner.values.size(); ++i)
      inner.values[i] = p.b * gram.values[i] + p.c * square.values[i];
    Real next = product(inner, x);
    for (std::size_t i = 0; i < x.values.size(); ++i) next.values[i] += p.a * x.values[i];

    // Columns beyond the rows have the singular value 0.
    std::vector<double> columns = singular;
    if (given.columns > given.rows) columns.push_back(0);
    Step step{{}, 0};
    double largest = 0, gram_factor = 0;
    for (const double s : singular) {
      largest = std::max(largest, s);
      for (const double r : columns) {
        for (const double sign : {1, -1}) step.factors.push_back(divided_difference(p, s, sign * r));
      }
      // b dA + c (A dA + dA A), times X
      for (const double r : singular)
        gram_factor = std::max(gram_factor, std::abs(p.b + p.c * (s * s + r * r)) * r);
    }
    // Roundings, an inner product of k terms being wrong by k u |a| |b| (Jeannerod and Rump 2013). The
    // coefficients are rounded too.
    const Real abs_x = magnitudes(x), abs_gram = magnitudes(gram);
    const double in_gram = n * u * norm(product(abs_x, transposed(abs_x))) * gram_factor;
    const double in_square = std::abs(p.c) * m * u * norm(product(abs_gram, abs_gram)) * largest;
    const double in_inner =
        u * (2 * std::abs(p.b) * norm(gram) + 2 * std::abs(p.c) * norm(square) + norm(inner)) * largest;
    const double in_next =
        u * (m * norm(product(magnitudes(inner), abs_x)) + 2 * std::abs(p.a) * norm(x) + norm(next));
    const double underflow = m * n * (m + n) * (std::abs(p.a) + std::abs(p.b) + std::abs(p.c)) * eta;
    // The second derivative, on the square of what has come so far; it covers products of two errors.
    const double before = propagated(initial, steps);
    const double curvature = 6 * std::abs(p.b) * largest + 20 * std::abs(p.c) * std::pow(largest, 3);
    step.added = in_gram + in_square + in_inner + in_next + underflow + curvature * before * before;
    steps.push_back(std::move(step));
    for (double& s : singular) s = s * (p.a + p.b * s * s + p.c * std::pow(s, 4));
    x = std::move(next);
  }

  const double error = propagated(initial, steps);
  Matrix<Bound> result(given.rows, given.columns);
  for (std::size_t i = 0; i < x.values.size(); ++i) result.values[i] = settled(x.values[i], error);
  return result;
}

}  // namespace assay
