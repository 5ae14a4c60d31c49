#pragma once

#include <cmath>
#include <cstdint>
#include <type_traits>

#include "assay/golden/bound.h"
#include "assay/golden/truth.h"

/// The arithmetic in which operators are written, alike for float (level `report`), double (`fp64`), Bound
/// and Truth.
namespace assay {

#define ASSAY_FUNCTION(f)     \
  inline float f(float x) {   \
    return std::f(x);         \
  }                           \
  inline double f(double x) { \
    return std::f(x);         \
  }
ASSAY_FUNCTION(sqrt)
ASSAY_FUNCTION(exp)
ASSAY_FUNCTION(log)
ASSAY_FUNCTION(log1p)
ASSAY_FUNCTION(expm1)
ASSAY_FUNCTION(tanh)
ASSAY_FUNCTION(erf)
ASSAY_FUNCTION(erfc)
ASSAY_FUNCTION(sin)
ASSAY_FUNCTION(cos)
ASSAY_FUNCTION(abs)
#undef ASSAY_FUNCTION
inline float pow(float x, float y) {
  return std::pow(x, y);
}
inline double pow(double x, double y) {
  return std::pow(x, y);
}
inline bool isnan(float x) {
  return std::isnan(x);
}
inline bool isnan(double x) {
  return std::isnan(x);
}
inline bool isinf(float x) {
  return std::isinf(x);
}
inline bool isinf(double x) {
  return std::isinf(x);
}

/// A constant of the formula (eps, a learning rate): rounded to float at level report; in Bound with the
/// error that its rounding to the device's format may make.
template <class T>
T constant(double value) {
  if constexpr (std::is_same_v<T, Bound>) return rounded_constant(value);
  return T(value);
}

/// An extent or a count as a scalar.
template <class T>
T number(std::int64_t n) {
  return constant<T>(static_cast<double>(n));
}

/// What frameworks compute once on the host in float64 (Adam's bias corrections): exact, then rounded once.
template <class T>
T host_scalar(const Truth& exact) {
  if constexpr (std::is_same_v<T, Truth>)
    return exact;
  else
    return constant<T>(static_cast<double>(exact));
}

/// The larger one; NaN if either is (torch.maximum).
template <class T>
T maximum(const T& a, const T& b) {
  if constexpr (std::is_same_v<T, Bound>) {
    return larger(a, b);
  } else {
    return isnan(a) || b < a ? a : b;
  }
}

/// `better`, where the golden value avoids a cancellation that kernels do not: in Bound with the error of the
/// form that is `usual`.
template <class T, class F, class G>
T without_cancellation(F better, G usual) {
  const T value = better();
  if constexpr (std::is_same_v<T, Bound>) return settled(value.value, worse(value.error, usual().error));
  return value;
}

/// sum f(i), i < n. In float and double: left to right, as written. In Bound: for any order of the additions,
/// (n-1) u sum |x_i| beside what the terms bring along (Jeannerod and Rump 2013: no higher-order term is
/// needed).
template <class T, class F>
T sum(std::int64_t n, F f) {
  if constexpr (std::is_same_v<T, Bound>) {
    double value = 0, magnitude = 0, inherited = 0;
    for (std::int64_t i = 0; i < n; ++i) {
      const Bound term = f(i);
      value += term.value;
      magnitude += std::abs(term.value) + term.error;
      inherited += term.error;
    }
    const double additions = n > 1 ? static_cast<double>(n - 1) : 0;
    const double rounding = additions * ErrorScope::current().unit_roundoff * magnitude;
    return settled(value, std::isfinite(value) ? inherited + rounding : inherited);
  } else {
    T total = T(0);
    for (std::int64_t i = 0; i < n; ++i) total += f(i);
    return total;
  }
}

}  // namespace assay
