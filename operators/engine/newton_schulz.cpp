#include "assay/operators/engine/newton_schulz.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "assay/golden/accumulator.h"
#include "assay/golden/dtype.h"
#include "assay/golden/evidence.h"
#include "assay/operators/engine/singular_directions.h"

// A step is the matrix function p of the singular values, so its derivative maps an error E, seen in the
// singular vectors of X, element by element: symmetric parts are multiplied by (p(s) - p(r)) / (s - r),
// antisymmetric ones by (p(s) + p(r)) / (s + r), for the singular values s of the row and r of the column
// (Noferini 2017, "A formula for the Frechet derivative of a generalized matrix function"). Those factors
// multiply over the steps, because the vectors stay: f_kl over all steps behind an error.
//
// An error D that enters becomes sum_kl u_ik f_kl v_jl (U^T D V)_kl in the element (i, j). U and V keep sums
// of squares. So the element is off by no more than ||D|| sqrt(q_ij), q_ij = sum_kl u_ik^2 f_kl^2 v_jl^2
// (Cauchy and Schwarz); and if the elements of D are independent roundings of mean 0, each within d, by no
// more than `improbable` d sqrt(q_ij), but for one element in 4e13 (Hoeffding, as in golden/evidence.h).
//
// Roundings are independent unless numbers repeat: equal rows are rounded alike. That shows in any kernel, so
// a plain loop in float32 shows it: where it errs by more than half of what independent roundings may, it
// has disproved them, and the bound is that of the norm.
namespace assay {
namespace {

double square(double x) {
  return x * x;
}

// (p(s) - p(r)) / (s - r), without the division.
double divided_difference(const Quintic& p, double s, double r) {
  const double s2 = s * s, r2 = r * r, sr = s * r;
  return p.a + p.b * (s2 + sr + r2) + p.c * (s2 * s2 + s2 * sr + s2 * r2 + sr * r2 + r2 * r2);
}

// What the elements of one product may be off by.
struct Loss {
  double variance = 0;  // of independent roundings: the largest sum of the squares of what each may be
  double norm = 0;      // in any case
};

// How the device adds and stores.
struct Device {
  explicit Device(const ErrorModel& m)
      : u(m.unit_roundoff), stored(m.stored_roundoff), underflow(m.min_subnormal) {
    if (m.accumulator) {
      adding = m.accumulator->unit_roundoff;
      if (m.accumulator->fused > 0) adding = std::ldexp(1, -std::min(m.accumulator->fraction_bits, 23));
      is_fair = m.accumulator->fused == 0 && !m.accumulator->truncates && !m.accumulator->worst_case;
      if (!is_fair) adding *= 2;
    }
    is_fair = is_fair && !m.own;
    adding = std::max(adding, u);
  }
  double u, stored, underflow;
  double adding = 0;    // of the accumulator
  bool is_fair = true;  // rounds to nearest, and what is improbable counts as impossible
};

struct Partial {
  double sum = 0, of_sums = 0, of_terms = 0, magnitude = 0;  // squares of partial sums, and of terms
  void add(double term) {
    sum += term;
    of_sums += sum * sum;
    of_terms += term * term;
    magnitude += std::abs(term);
  }
};

// Sums of products, and the rounding of what they are stored as. Of n terms with the partial sums s_k each
// addition loses no more than u |s_k|, from left to right or in a random order (golden/accumulator.cpp), and
// all of them (n - 1) u sum |terms| (Jeannerod and Rump 2013).
Real product_with_loss(const Real& a, const Real& b, const Device& device, Loss& loss) {
  Real y(a.rows, b.columns);
  const auto n = static_cast<double>(a.columns);
  double squares = 0, norms = 0;
  for (std::int64_t i = 0; i < y.rows; ++i) {
    // Of all columns at a time, so that sums do not wait for each other.
    std::vector<Partial> partial(static_cast<std::size_t>(y.columns));
    for (std::int64_t k = 0; k < a.columns; ++k) {
      for (std::int64_t j = 0; j < y.columns; ++j)
        partial[static_cast<std::size_t>(j)].add(a(i, k) * b(k, j));
    }
    for (std::int64_t j = 0; j < y.columns; ++j) {
      auto [sum, of_sums, of_terms, magnitude] = partial[static_cast<std::size_t>(j)];
      y(i, j) = sum;
      const double mean = sum / n, spread = std::max(0.0, of_terms / n - mean * mean);
      of_sums = std::max(of_sums, mean * mean * n * n * n / 3 + spread * n * n / 6);
      const double result = device.u + device.stored;
      squares = std::max(
          squares, square(device.adding) * of_sums + square(device.u) * of_terms + square(result * sum));
      norms += square(n * device.adding * magnitude + result * std::abs(sum));
    }
  }
  loss.variance += squares;
  loss.norm += std::sqrt(norms);
  return y;
}

// The error so far, by the direction k of the row and l of the column; the last column stands for all columns
// beyond the rows, whose singular value is 0.
struct Growth {
  Growth(std::size_t values, bool independent, double norm_of_given)
      : is_independent(independent),
        roundings(static_cast<std::int64_t>(values), static_cast<std::int64_t>(values) + 1),
        given(roundings),
        kept(values, 0),
        second(roundings) {
    for (double& v : given.values) v = square(norm_of_given);
  }
  bool is_independent;
  Real roundings;  // variances of independent ones; else squares of norms, `entered` of them
  Real given;      // the square of the norm of what X was off by
  double entered = 0;
  std::vector<double> kept;  // by a change of coefficients, which leaves the directions
  Real second;               // the square of the norm of what is of second order, or underflows
  double last = 0;           // of second order by the last step: of each element,
  double last_in_norm = 0;   // and in the norm

  // How many columns the l-th stands for.
  double count(std::int64_t l, std::int64_t columns) const {
    return static_cast<double>(l < roundings.rows ? 1 : columns - roundings.rows);
  }
  // Norms of the error: of a vector of independent ones that of their deviations and, but for one in 4e13, no
  // more than `improbable` times the largest (Talagrand 1996, "A new look at independence", thm 6.6).
  double fixed() const {
    const double any = is_independent ? 0 : entered * largest_magnitude(roundings.values);
    return std::sqrt(any) + std::sqrt(largest_magnitude(given.values)) + largest_magnitude(kept) +
           std::sqrt(largest_magnitude(second.values)) + last_in_norm;
  }
  double norm_of(double variances) const {
    const double most = improbable * std::sqrt(largest_magnitude(roundings.values));
    return is_independent ? std::sqrt(variances) + most + fixed() : fixed();
  }
  double whole(std::int64_t columns) const {
    double all = 0;
    for (std::int64_t k = 0; k < roundings.rows; ++k) {
      for (std::int64_t l = 0; l < roundings.columns; ++l) all += count(l, columns) * roundings(k, l);
    }
    return norm_of(all);
  }
  // Of any one row or column.
  double line(const Directions& d) const {
    const std::int64_t m = roundings.rows, n = d.right.columns;
    double most = 0;
    for (std::int64_t i = 0; i < m; ++i) {
      double all = 0;
      for (std::int64_t k = 0; k < m; ++k) {
        double row = 0;
        for (std::int64_t l = 0; l <= m; ++l) row += count(l, n) * roundings(k, l);
        all += square(d.left(k, i)) * row;
      }
      most = worse(most, all);
    }
    std::vector<double> of_columns(static_cast<std::size_t>(m + 1), 0);
    for (std::int64_t k = 0; k < m; ++k) {
      for (std::int64_t l = 0; l <= m; ++l) of_columns[static_cast<std::size_t>(l)] += roundings(k, l);
    }
    for (std::int64_t j = 0; j < n; ++j) {
      double all = 0, left = 1;
      for (std::int64_t l = 0; l < m; ++l) {
        all += square(d.right(l, j)) * of_columns[static_cast<std::size_t>(l)];
        left -= square(d.right(l, j));
      }
      most = worse(most, all + std::max(left, 0.0) * of_columns.back());
    }
    return norm_of(most);
  }
  void enter(const Loss& loss, auto factor) {
    const double one = is_independent ? loss.variance : square(loss.norm);
    for (std::int64_t k = 0; k < roundings.rows; ++k) {
      for (std::int64_t l = 0; l < roundings.columns; ++l) roundings(k, l) += one * square(factor(k, l));
    }
    ++entered;
  }
};

// All elements share the divisor: a factor of X, which is one of its singular values, p after p. What they
// are at both ends of what it may be; between them is no more but for third order.
struct Ends {
  std::vector<double> low, high;
  double furthest(const std::vector<double>& singular) const {
    double most = 0;
    for (std::size_t k = 0; k < singular.size(); ++k)
      most = worse(most, worse(std::abs(low[k] - singular[k]), std::abs(high[k] - singular[k])));
    return most;
  }
};

// A step: its factors on what came in, then what it adds.
void step(Growth& g, const Quintic& p, Real& x, std::vector<double>& singular, Ends& ends,
          const Directions& directions, const Device& d) {
  const auto value = [&](std::int64_t k) { return k < x.rows ? singular[static_cast<std::size_t>(k)] : 0.0; };
  const double top = largest_magnitude(singular);
  // The second derivative, on the square of what has come so far; it covers products of two errors. Products
  // such as E E^T X have in no element more than the norm of E times that of one of its rows or columns.
  const double before = g.whole(x.columns), line = g.line(directions), shared = ends.furthest(singular);
  const double curvature = 6 * std::abs(p.b) * top + 20 * std::abs(p.c) * std::pow(top, 3);
  for (std::int64_t k = 0; k < g.roundings.rows; ++k) {
    for (std::int64_t l = 0; l < g.roundings.columns; ++l) {
      const double f = worse(std::abs(divided_difference(p, value(k), value(l))),
                             std::abs(divided_difference(p, value(k), -value(l))));
      g.roundings(k, l) *= f * f;
      g.given(k, l) *= f * f;
      // (a + b)^2 <= 2 a^2 + 2 b^2
      g.second(k, l) = 2 * (g.second(k, l) + square(g.last_in_norm)) * f * f;
    }
  }
  Loss in_gram, in_square, in_inner, in_next;
  const Real gram = product_with_loss(x, transposed(x), d, in_gram);
  const Real squared = product_with_loss(gram, gram, d, in_square);
  Real inner = gram;
  double squares = 0;
  for (std::size_t i = 0; i < inner.values.size(); ++i) {
    const double one = p.b * gram.values[i], other = p.c * squared.values[i];
    inner.values[i] = one + other;
    const double rounded = square(d.u * one) + square(d.u * other) + square((d.u + d.stored) * (one + other));
    in_inner.variance = std::max(in_inner.variance, rounded);
    squares += 3 * rounded;  // (a + b + c)^2 <= 3 (a^2 + b^2 + c^2)
  }
  in_inner.norm = std::sqrt(squares);
  Real next = product_with_loss(inner, x, d, in_next);
  squares = 0;
  double largest_rounding = 0;
  for (std::size_t i = 0; i < x.values.size(); ++i) {
    const double kept = p.a * x.values[i];
    next.values[i] += kept;
    const double rounded = square(d.u * kept) + square((d.u + d.stored) * next.values[i]);
    largest_rounding = std::max(largest_rounding, rounded);
    squares += 2 * rounded;
  }
  in_next.variance += largest_rounding;
  in_next.norm += std::sqrt(squares);
  // gram, its square and the inner polynomial may be rounded symmetrically: twice the variance.
  for (Loss* symmetric : {&in_gram, &in_square, &in_inner}) symmetric->variance *= 2;
  // b dG + c (G dG + dG G), c dS, dI, each times X: nothing where the column has no singular value.
  const auto times_x = [&](std::int64_t k, std::int64_t l) {
    return l < x.rows ? std::max(value(k), value(l)) : 0.0;
  };
  g.enter(in_gram, [&](auto k, auto l) {
    return (p.b + p.c * (square(value(k)) + square(value(l)))) * times_x(k, l);
  });
  g.enter(in_square, [&](auto k, auto l) { return p.c * times_x(k, l); });
  g.enter(in_inner, times_x);
  g.enter(in_next, [](auto, auto) { return 1.0; });
  const auto m = static_cast<double>(x.rows), n = static_cast<double>(x.columns);
  const double underflow = m * n * (m + n) * (std::abs(p.a) + std::abs(p.b) + std::abs(p.c)) * d.underflow;
  g.last_in_norm = curvature * before * (before + 2 * shared) + underflow;
  g.last = curvature * line * (before + 2 * shared) + underflow;
  for (std::size_t k = 0; k < singular.size(); ++k) {
    double& s = singular[k];
    const double slope = divided_difference(p, s, s);
    g.kept[k] =
        std::abs(slope) * g.kept[k] + d.u * Quintic{std::abs(p.a), std::abs(p.b), std::abs(p.c)}(std::abs(s));
    for (double* v : {&s, &ends.low[k], &ends.high[k]}) *v = p(*v);
  }
  x = std::move(next);
}

// What X is off by before the first step.
struct Given {
  Loss rounded;
  double norm = 0;  // of the rest
};

struct Iterated {
  Real x;
  std::vector<double> errors;  // of its elements
};

Iterated iterate(Real x, const Directions& directions, const Given& given_errors, double off,
                 std::span<const Quintic> polynomials, const Device& device, bool is_independent) {
  std::vector<double> singular = directions.values;
  Growth growth(singular.size(), is_independent, given_errors.norm);
  growth.enter(given_errors.rounded, [](auto, auto) { return 1.0; });
  Ends ends{singular, singular};
  for (double& s : ends.low) s *= 1 - off;
  for (double& s : ends.high) s *= 1 + off;
  for (const Quintic& p : polynomials) step(growth, p, x, singular, ends, directions, device);
  for (std::size_t k = 0; k < singular.size(); ++k) {
    ends.low[k] -= singular[k];
    ends.high[k] -= singular[k];
  }
  const Real roundings = roots(growth.roundings, directions), given = roots(growth.given, directions),
             second = roots(growth.second, directions);
  const Real kept = along_directions(growth.kept, directions, true);
  const Real low = along_directions(ends.low, directions, false),
             high = along_directions(ends.high, directions, false);
  const double times = is_independent ? improbable : std::sqrt(growth.entered);
  std::vector<double> errors(x.values.size());
  for (std::size_t i = 0; i < errors.size(); ++i) {
    errors[i] = times * roundings.values[i] + given.values[i] + kept.values[i] + second.values[i] +
                growth.last + worse(low.values[i], high.values[i]);
  }
  return {std::move(x), std::move(errors)};
}

// Whether a plain loop in float32 errs by no more than half of what independent roundings may.
bool rounds_independently(const Matrix<Bound>& given, double divisor, std::span<const Quintic> polynomials,
                          const Iterated& iterated, const Device& device) {
  Matrix<float> x(given.rows, given.columns);
  for (std::size_t i = 0; i < x.values.size(); ++i) x.values[i] = static_cast<float>(given.values[i].value);
  const Matrix<float> made = newton_schulz(std::move(x), static_cast<float>(divisor), polynomials);
  const double half = 0.5 * unit_roundoff(DType::float32) / std::max(device.adding, device.stored);
  for (std::size_t i = 0; i < iterated.errors.size(); ++i) {
    const double error = std::abs(static_cast<double>(made.values[i]) - iterated.x.values[i]);
    if (!(error <= half * iterated.errors[i])) return false;
  }
  return true;
}

}  // namespace

Matrix<Bound> newton_schulz_bound(const Matrix<Bound>& given, const Bound& divisor,
                                  std::span<const Quintic> polynomials) {
  const Device device(ErrorScope::current());
  // An element that is off by a dozen of its own roundings was made by a momentum, a sum and a division,
  // whose two constants are rounded for all elements. What it is off by beyond that came with the gradients.
  constexpr double own_roundings = 12, constants = 2;
  const double rounding = device.u + device.stored;
  Real x(given.rows, given.columns);
  Given off_before;
  double rounded = 0, others = 0;
  for (std::size_t i = 0; i < x.values.size(); ++i) {
    const Bound v = stored(given.values[i] / Bound(divisor.value));
    x.values[i] = v.value;
    const double own = std::min(v.error, own_roundings * rounding * std::abs(v.value));
    rounded += square(own);
    off_before.rounded.variance = std::max(off_before.rounded.variance, square(own));
    others += square(v.error - own) + square(constants * device.u * v.value);
  }
  off_before.rounded.norm = std::sqrt(rounded);
  off_before.norm = std::sqrt(others);
  const double room = std::abs(divisor.value) - divisor.error;
  const double off = divisor.error == 0 ? 0 : room > 0 ? divisor.error / room : infinity;
  const Directions directions = directions_of(x);
  const auto iterated = [&](bool is_independent) {
    return iterate(x, directions, off_before, off, polynomials, device, is_independent);
  };
  Iterated all = iterated(device.is_fair);
  if (device.is_fair && !rounds_independently(given, divisor.value, polynomials, all, device))
    all = iterated(false);
  Matrix<Bound> result(given.rows, given.columns);
  for (std::size_t i = 0; i < all.errors.size(); ++i)
    result.values[i] = settled(all.x.values[i], all.errors[i]);
  return result;
}

}  // namespace assay
