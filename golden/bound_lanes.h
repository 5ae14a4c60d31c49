#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <limits>

#include "assay/golden/bound.h"

namespace assay {

/// N numbers side by side. Every machine has two in one register; of more, code is compiled for the machines
/// that do (Operator::run_lanes). What is done to a number does not depend on N.
/// The alignment, too, is the same for all instruction sets.
template <int N>
struct LaneTypes;
template <>
struct LaneTypes<2> {
  using Doubles = double __attribute__((vector_size(16), aligned(16)));
  using Integers = std::int64_t __attribute__((vector_size(16), aligned(16)));
};
template <>
struct LaneTypes<4> {
  using Doubles = double __attribute__((vector_size(32), aligned(32)));
  using Integers = std::int64_t __attribute__((vector_size(32), aligned(32)));
};
template <>
struct LaneTypes<8> {
  using Doubles = double __attribute__((vector_size(64), aligned(64)));
  using Integers = std::int64_t __attribute__((vector_size(64), aligned(64)));
};
template <int N>
using Doubles = typename LaneTypes<N>::Doubles;

// What is inlined into a function of these has the instructions for as many lanes. clang's "flatten" ends at
// the first call.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define ASSAY_WIDE_LANES
#define ASSAY_FOUR_LANES [[gnu::target("avx2"), gnu::flatten]]
#define ASSAY_EIGHT_LANES [[gnu::target("avx512f,avx512dq,avx512vl"), gnu::flatten]]
#endif

// How vectors are handed over depends on the instruction set: what takes or returns them is no call. Types
// that hold two of them lie in memory everywhere.
#define ASSAY_LANES [[gnu::always_inline]] inline
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wpsabi"

template <class D>
using IntegersLike = typename LaneTypes<sizeof(D) / sizeof(double)>::Integers;

template <class D>
ASSAY_LANES D all_lanes(double x) {
  D y = {};
  for (std::size_t k = 0; k < sizeof(D) / sizeof(double); ++k) y[k] = x;
  return y;
}
template <class D>
ASSAY_LANES D magnitude(const D& x) {
  return (D)((IntegersLike<D>)x & std::numeric_limits<std::int64_t>::max());
}
template <class D, class F>
ASSAY_LANES D each(const D& x, F f) {
  D y = {};
  for (std::size_t k = 0; k < sizeof(D) / sizeof(double); ++k) y[k] = f(x[k]);
  return y;
}

/// e^x within 2 units in the last place, of the same bits on every machine; 0 where it is below 2^-1022.
/// e^x = 2^k e^r, |r| <= ln(2) / 2 (Muller, Elementary Functions, 3rd ed., sec. 11.1), e^r by its Taylor
/// series.
template <class D>
ASSAY_LANES D exp_of_lanes(const D& x) {
  constexpr double lowest = -708, highest = 709;
  constexpr double to_integer = 0x1.8p52;  // what is added to it is rounded, in its last bits
  // ln 2 in two parts, the first of so few bits that its products with k are exact.
  constexpr double log2_e = 0x1.71547652b82fep0, ln2_high = 0x1.62e42fefa0000p-1,
                   ln2_low = 0x1.cf79abc9e3b39p-40;
  constexpr double inverse_factorials[] = {1. / 6227020800, 1. / 479001600, 1. / 39916800, 1. / 3628800,
                                           1. / 362880,     1. / 40320,     1. / 5040,     1. / 720,
                                           1. / 120,        1. / 24,        1. / 6,        1. / 2};
  D inside = x < lowest ? all_lanes<D>(lowest) : x;  // NaN remains
  inside = inside > highest ? all_lanes<D>(highest) : inside;
  const D rounded = inside * log2_e + to_integer, k = rounded - to_integer;
  const D r = (inside - k * ln2_high) - k * ln2_low;
  D series = all_lanes<D>(inverse_factorials[0]);
  for (std::size_t i = 1; i < std::size(inverse_factorials); ++i) series = series * r + inverse_factorials[i];
  const D power = (1 + (r + r * r * series)) * (D)(((IntegersLike<D>)rounded + 1023) << 52);
  const D small = x < lowest ? D{} : power;
  return x > highest ? all_lanes<D>(std::numeric_limits<double>::infinity()) : small;
}

/// N Bounds of the quick error model (ErrorModel::quick), a fraction of their price: an error is never more
/// than that of Bound. Nothing is special about NaN and infinities: an error that they have made is no
/// number, and allows nothing.
template <int N>
struct BoundLanes {
  using Vector = Doubles<N>;
  Vector value = {}, error = {};

  BoundLanes() = default;
  BoundLanes(double v) : value(all_lanes<Vector>(v)) {}  // NOLINT: constants are exact
  BoundLanes(const Bound& b)                             // NOLINT: the same in all
      : value(all_lanes<Vector>(b.value)), error(all_lanes<Vector>(b.error)) {}
  BoundLanes(const Vector& v, const Vector& e) : value(v), error(e) {}

  BoundLanes& operator+=(const BoundLanes& b) { return *this = *this + b; }
  BoundLanes& operator-=(const BoundLanes& b) { return *this = *this - b; }
  BoundLanes& operator*=(const BoundLanes& b) { return *this = *this * b; }
  BoundLanes& operator/=(const BoundLanes& b) { return *this = *this / b; }
  BoundLanes operator-() const { return {-value, error}; }
  friend BoundLanes operator+(const BoundLanes& a, const BoundLanes& b) {
    const Vector value = a.value + b.value, inherited = a.error + b.error;
    return {value, inherited + u() * (magnitude(value) + inherited)};
  }
  friend BoundLanes operator-(const BoundLanes& a, const BoundLanes& b) { return a + -b; }
  friend BoundLanes operator*(const BoundLanes& a, const BoundLanes& b) {
    const Vector inherited = magnitude(a.value) * b.error + magnitude(b.value) * a.error + a.error * b.error;
    return rounded(a.value * b.value, inherited, 1);
  }
  friend BoundLanes operator/(const BoundLanes& a, const BoundLanes& b) {
    const Vector value = a.value / b.value;
    return rounded(value, (a.error + magnitude(value) * b.error) / magnitude(b.value), 2 * ulps::divide);
  }

  friend BoundLanes exp(const BoundLanes& x) {
    const Vector value = exp_of_lanes(x.value);
    return rounded(value, x.error * value, 2 * ulps::exp);
  }
  friend BoundLanes sqrt(const BoundLanes& x) {
    const Vector value = each(x.value, [](double v) { return std::sqrt(v); });
    return rounded(value, x.error * 0.5 / value, 2 * ulps::square_root);
  }
  friend BoundLanes log(const BoundLanes& x) {
    return rounded(each(x.value, [](double v) { return std::log(v); }), x.error / x.value, 2 * ulps::log);
  }
  // The slopes of these are not asked for: what they inherit is left to Bound.
  friend BoundLanes tanh(const BoundLanes& x) {
    return rounded(each(x.value, [](double v) { return std::tanh(v); }), Vector{}, 2 * ulps::tanh);
  }
  friend BoundLanes erf(const BoundLanes& x) {
    return rounded(each(x.value, [](double v) { return std::erf(v); }), Vector{}, 2 * ulps::erf);
  }
  friend BoundLanes erfc(const BoundLanes& x) {
    return rounded(each(x.value, [](double v) { return std::erfc(v); }), Vector{}, 2 * ulps::erf);
  }

 private:
  static double u() { return ErrorScope::current().unit_roundoff; }
  static BoundLanes rounded(const Vector& value, const Vector& inherited, double roundings) {
    const ErrorModel& device = ErrorScope::current();
    return {value, inherited + roundings * device.unit_roundoff * (magnitude(value) + inherited) +
                       device.min_subnormal};
  }
};

template <class T>
inline constexpr bool is_lanes = false;
template <int N>
inline constexpr bool is_lanes<BoundLanes<N>> = true;

/// In each lane the larger one, with its error; NaN if either is.
template <int N>
BoundLanes<N> larger(const BoundLanes<N>& a, const BoundLanes<N>& b) {
  const auto first = (b.value < a.value) | (a.value != a.value);
  return {first ? a.value : b.value, first ? a.error : b.error};
}
/// In each lane the one or the other, as x is negative or not.
template <int N>
BoundLanes<N> by_sign(const BoundLanes<N>& x, const BoundLanes<N>& negative, const BoundLanes<N>& other) {
  const auto below = x.value < 0;
  return {below ? negative.value : other.value, below ? negative.error : other.error};
}
/// In each lane the value of `x` with the larger of two errors.
template <int N>
BoundLanes<N> with_larger_error(const BoundLanes<N>& x, const BoundLanes<N>& other) {
  return {x.value, x.error < other.error ? other.error : x.error};
}
template <int N>
BoundLanes<N> stored_narrow(const BoundLanes<N>& x) {
  const double loss = ErrorScope::current().stored_roundoff;
  if (loss == 0) return x;
  return {x.value, x.error + loss * (magnitude(x.value) + x.error)};
}
/// sum f(i), i < n, each lane from left to right.
template <class T, class F>
T sum_of_lanes(std::int64_t n, F f) {
  typename T::Vector value = {}, error = {}, squares = {};
  for (std::int64_t i = 0; i < n; ++i) {
    const T term = f(i);
    value += term.value;
    error += term.error;
    squares += term.value * term.value;
  }
  const double u = ErrorScope::current().unit_roundoff;
  for (std::size_t k = 0; k < sizeof value / sizeof(double); ++k)
    error[k] += least_loss(n, value[k], squares[k], u);
  return {value, error};
}

#pragma GCC diagnostic pop
#undef ASSAY_LANES

}  // namespace assay
