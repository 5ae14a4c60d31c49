#include "assay/operators/engine/singular_directions.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "assay/golden/arithmetic.h"

namespace assay {

double largest_magnitude(const std::vector<double>& values) {
  double most = 0;
  for (const double v : values) most = worse(most, std::abs(v));
  return most;
}

// One-sided Jacobi (Hestenes 1958; Golub and Van Loan 2013, sec. 8.6.3): rows are turned until they are
// orthogonal.
Directions directions_of(Real x) {
  constexpr int most_sweeps = 40;
  constexpr double negligible = 0x1p-50;
  Real left(x.rows, x.rows);
  for (std::int64_t i = 0; i < x.rows; ++i) left(i, i) = 1;
  const auto turn = [](Real& m, std::int64_t p, std::int64_t q, double c, double s) {
    double* a = &m(p, 0);
    double* b = &m(q, 0);
    for (std::int64_t k = 0; k < m.columns; ++k) {
      const double old = a[k];
      a[k] = c * old - s * b[k];
      b[k] = s * old + c * b[k];
    }
  };
  bool turned = x.columns > 0;
  for (int sweep = 0; turned && sweep < most_sweeps; ++sweep) {
    turned = false;
    for (std::int64_t p = 0; p < x.rows; ++p) {
      for (std::int64_t q = p + 1; q < x.rows; ++q) {
        double pp = 0, qq = 0, pq = 0;
        const double *a = &x(p, 0), *b = &x(q, 0);
        for (std::int64_t k = 0; k < x.columns; ++k) {
          pp += a[k] * a[k];
          qq += b[k] * b[k];
          pq += a[k] * b[k];
        }
        if (!(std::abs(pq) > negligible * std::sqrt(pp * qq))) continue;
        turned = true;
        const double tau = (qq - pp) / (2 * pq);
        const double tangent = std::copysign(1, tau) / (std::abs(tau) + std::hypot(1, tau));
        const double c = 1 / std::hypot(1, tangent), s = tangent * c;
        turn(x, p, q, c, s);
        turn(left, p, q, c, s);
      }
    }
  }
  Directions d{{}, std::move(left), std::move(x)};
  for (std::int64_t k = 0; k < d.right.rows; ++k) {
    double squares = 0;
    for (std::int64_t j = 0; j < d.right.columns; ++j) squares += d.right(k, j) * d.right(k, j);
    d.values.push_back(std::sqrt(squares));
  }
  // What is nothing beside the largest has no direction of its own: it is one of those of the value 0.
  const double nothing = 0x1p-40 * largest_magnitude(d.values);
  for (std::int64_t k = 0; k < d.right.rows; ++k) {
    const double s = d.values[static_cast<std::size_t>(k)];
    for (std::int64_t j = 0; j < d.right.columns; ++j) d.right(k, j) = s > nothing ? d.right(k, j) / s : 0;
  }
  return d;
}

Real roots(const Real& factors, const Directions& d) {
  const std::int64_t m = factors.rows, n = d.right.columns;
  Real left = transposed(d.left), right = d.right;
  for (double& v : left.values) v *= v;
  for (double& v : right.values) v *= v;
  Real weights(m + 1, n);
  for (std::int64_t j = 0; j < n; ++j) {
    double rest = 1;
    for (std::int64_t l = 0; l < m; ++l) rest -= weights(l, j) = right(l, j);
    weights(m, j) = std::max(rest, 0.0);
  }
  Real q = product(product(left, factors), weights);
  for (double& v : q.values) v = std::sqrt(v);
  return q;
}

Real along_directions(const std::vector<double>& s, const Directions& d, bool of_magnitudes) {
  Real left = transposed(d.left), right = d.right;
  for (std::int64_t i = 0; i < left.rows; ++i) {
    for (std::int64_t k = 0; k < left.columns; ++k) left(i, k) *= s[static_cast<std::size_t>(k)];
  }
  if (of_magnitudes) {
    for (Real* m : {&left, &right}) {
      for (double& v : m->values) v = std::abs(v);
    }
  }
  Real y = product(left, right);
  for (double& v : y.values) v = std::abs(v);
  return y;
}

}  // namespace assay
