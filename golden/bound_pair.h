#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "assay/golden/bound.h"

namespace assay {

/// Two numbers: what every machine has in one register, so that no instruction set is chosen.
using DoublePair = double __attribute__((vector_size(16)));
using IntegerPair = std::int64_t __attribute__((vector_size(16)));

inline DoublePair both(double x) {
  return DoublePair{x, x};
}
inline DoublePair magnitude(const DoublePair& x) {
  return std::bit_cast<DoublePair>(std::bit_cast<IntegerPair>(x) & std::numeric_limits<std::int64_t>::max());
}
template <class F>
DoublePair each(const DoublePair& x, F f) {
  return DoublePair{f(x[0]), f(x[1])};
}

/// e^x within 2 units in the last place, of the same bits on every machine; 0 where it is below 2^-1022.
/// e^x = 2^k e^r, |r| <= ln(2) / 2 (Muller, Elementary Functions, 3rd ed., sec. 11.1), e^r by its Taylor
/// series.
inline DoublePair exp(const DoublePair& x) {
  constexpr double lowest = -708, highest = 709;
  constexpr double to_integer = 0x1.8p52;  // what is added to it is rounded, in its last bits
  // ln 2 in two parts, the first of so few bits that its products with k are exact.
  constexpr double log2_e = 0x1.71547652b82fep0, ln2_high = 0x1.62e42fefa0000p-1,
                   ln2_low = 0x1.cf79abc9e3b39p-40;
  constexpr double inverse_factorials[] = {1. / 6227020800, 1. / 479001600, 1. / 39916800, 1. / 3628800,
                                           1. / 362880,     1. / 40320,     1. / 5040,     1. / 720,
                                           1. / 120,        1. / 24,        1. / 6,        1. / 2};
  DoublePair inside = x < lowest ? both(lowest) : x;  // NaN remains
  inside = inside > highest ? both(highest) : inside;
  const DoublePair rounded = inside * log2_e + to_integer, k = rounded - to_integer;
  const DoublePair r = (inside - k * ln2_high) - k * ln2_low;
  DoublePair series = both(inverse_factorials[0]);
  for (std::size_t i = 1; i < std::size(inverse_factorials); ++i) series = series * r + inverse_factorials[i];
  const DoublePair power = (1 + (r + r * r * series)) *
                           std::bit_cast<DoublePair>((std::bit_cast<IntegerPair>(rounded) + 1023) << 52);
  const DoublePair small = x < lowest ? both(0) : power;
  return x > highest ? both(std::numeric_limits<double>::infinity()) : small;
}

/// Two Bounds of the quick error model (ErrorModel::quick), a fraction of their price: an error is never more
/// than that of Bound. Nothing is special about NaN and infinities: an error that they have made is no
/// number, and allows nothing.
struct BoundPair {
  DoublePair value = {}, error = {};

  BoundPair() = default;
  BoundPair(double v) : value(both(v)) {}                                    // NOLINT: constants are exact
  BoundPair(const Bound& b) : value(both(b.value)), error(both(b.error)) {}  // NOLINT: the same in both
  BoundPair(const DoublePair& v, const DoublePair& e) : value(v), error(e) {}

  BoundPair& operator+=(const BoundPair& b) { return *this = *this + b; }
  BoundPair& operator-=(const BoundPair& b) { return *this = *this - b; }
  BoundPair& operator*=(const BoundPair& b) { return *this = *this * b; }
  BoundPair& operator/=(const BoundPair& b) { return *this = *this / b; }
  BoundPair operator-() const { return {-value, error}; }
  friend BoundPair operator+(const BoundPair& a, const BoundPair& b) {
    const DoublePair value = a.value + b.value, inherited = a.error + b.error;
    return {value, inherited + u() * (magnitude(value) + inherited)};
  }
  friend BoundPair operator-(const BoundPair& a, const BoundPair& b) { return a + -b; }
  friend BoundPair operator*(const BoundPair& a, const BoundPair& b) {
    const DoublePair inherited =
        magnitude(a.value) * b.error + magnitude(b.value) * a.error + a.error * b.error;
    return rounded(a.value * b.value, inherited, 1);
  }
  friend BoundPair operator/(const BoundPair& a, const BoundPair& b) {
    const DoublePair value = a.value / b.value;
    return rounded(value, (a.error + magnitude(value) * b.error) / magnitude(b.value), 2 * ulps::divide);
  }

  friend BoundPair exp(const BoundPair& x) {
    const DoublePair value = assay::exp(x.value);
    return rounded(value, x.error * value, 2 * ulps::exp);
  }
  friend BoundPair sqrt(const BoundPair& x) {
    const DoublePair value = each(x.value, [](double v) { return std::sqrt(v); });
    return rounded(value, x.error * 0.5 / value, 2 * ulps::square_root);
  }
  friend BoundPair log(const BoundPair& x) {
    return rounded(each(x.value, [](double v) { return std::log(v); }), x.error / x.value, 2 * ulps::log);
  }
  // The slopes of these are not asked for: what they inherit is left to Bound.
  friend BoundPair tanh(const BoundPair& x) {
    return rounded(each(x.value, [](double v) { return std::tanh(v); }), both(0), 2 * ulps::tanh);
  }
  friend BoundPair erf(const BoundPair& x) {
    return rounded(each(x.value, [](double v) { return std::erf(v); }), both(0), 2 * ulps::erf);
  }
  friend BoundPair erfc(const BoundPair& x) {
    return rounded(each(x.value, [](double v) { return std::erfc(v); }), both(0), 2 * ulps::erf);
  }

 private:
  static double u() { return ErrorScope::current().unit_roundoff; }
  static BoundPair rounded(const DoublePair& value, const DoublePair& inherited, double roundings) {
    const ErrorModel& device = ErrorScope::current();
    return {value, inherited + roundings * device.unit_roundoff * (magnitude(value) + inherited) +
                       device.min_subnormal};
  }
};

/// Of each pair the larger one, with its error; NaN if either is.
inline BoundPair larger(const BoundPair& a, const BoundPair& b) {
  const IntegerPair first = (b.value < a.value) | (a.value != a.value);
  return {first ? a.value : b.value, first ? a.error : b.error};
}
/// Of each pair the one or the other, as x is negative or not.
inline BoundPair by_sign(const BoundPair& x, const BoundPair& negative, const BoundPair& other) {
  const IntegerPair below = x.value < 0;
  return {below ? negative.value : other.value, below ? negative.error : other.error};
}
/// Of each pair a value with the larger of two errors.
inline BoundPair with_larger_error(const BoundPair& x, const DoublePair& error) {
  return {x.value, x.error < error ? error : x.error};
}
inline BoundPair stored_narrow(const BoundPair& x) {
  const double loss = ErrorScope::current().stored_roundoff;
  if (loss == 0) return x;
  return {x.value, x.error + loss * (magnitude(x.value) + x.error)};
}
/// sum f(i), i < n, each from left to right.
template <class F>
BoundPair sum_of_pairs(std::int64_t n, F f) {
  DoublePair value = {}, error = {}, squares = {};
  for (std::int64_t i = 0; i < n; ++i) {
    const BoundPair term = f(i);
    value += term.value;
    error += term.error;
    squares += term.value * term.value;
  }
  const double u = ErrorScope::current().unit_roundoff;
  for (int k = 0; k < 2; ++k) error[k] += least_loss(n, value[k], squares[k], u);
  return {value, error};
}

}  // namespace assay
