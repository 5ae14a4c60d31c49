#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "assay/golden/bound.h"
#include "assay/golden/bound_lanes.h"
#include "assay/golden/summation.h"
#include "assay/golden/truth.h"
#include "assay/golden/unrounded.h"

/// The arithmetic in which operators are written, alike for float (level `report`), double (`fp64`), Bound,
/// BoundLanes, Truth and Unrounded.
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
ASSAY_FUNCTION(floor)
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

/// The odd one of the two float64 around a number that is none: it lies on the same side of every number of
/// less than 53 bits.
/// @param nearest  the one nearest to the number
/// @param below    whether the number is below that one, or above
inline double to_odd(double nearest, bool below) {
  const bool even = (std::bit_cast<std::uint64_t>(nearest) & 1) == 0;
  return even ? std::nextafter(nearest, below ? -infinity : infinity) : nearest;
}
/// The same of x; x itself where it is a float64.
inline double to_odd(const Truth& x) {
  const auto nearest = static_cast<double>(x);
  if (!std::isfinite(nearest) || Truth(nearest) == x) return nearest;
  return to_odd(nearest, x < Truth(nearest));
}

/// A constant of the formula (eps, a learning rate): rounded to float at level report; in Bound with the
/// error that its rounding to the device's format may make.
template <class T>
T constant(double value) {
  if constexpr (std::is_same_v<T, Bound> || is_lanes<T>) return rounded_constant(value);
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
  if constexpr (std::is_same_v<T, Truth>) {
    return exact;
  } else {
    const auto nearest = static_cast<double>(exact);
    if constexpr (std::is_same_v<T, Bound>) {
      if (ErrorScope::current().own) return {nearest, std::abs(static_cast<double>(exact - Truth(nearest)))};
    }
    return constant<T>(nearest);
  }
}

/// An intermediate result that kernels may keep in a narrow format (the probabilities of flash attention, a
/// result of forward that backward takes up again): in Bound with that rounding, if the device's model says
/// so.
template <class T>
T stored(const T& x) {
  if constexpr (std::is_same_v<T, Bound> || is_lanes<T>) return stored_narrow(x);
  return x;
}

/// Whether values show that the narrow format is theirs: none has more digits, and a NaN tells nothing. A
/// float32 parameter is not stepped in the bfloat16 of its gradient.
template <class T>
bool are_narrow(const std::vector<T>& values) {
  if constexpr (std::is_same_v<T, Bound>) {
    return std::all_of(values.begin(), values.end(),
                       [](const T& v) { return isnan(v) || fits_narrow(v.value); });
  }
  return false;
}

/// The larger one; NaN if either is (torch.maximum).
template <class T>
T maximum(const T& a, const T& b) {
  if constexpr (std::is_same_v<T, Bound> || is_lanes<T>) {
    return larger(a, b);
  } else {
    return isnan(a) || b < a ? a : b;
  }
}

/// The smaller one; NaN if either is (torch.minimum).
template <class T>
T minimum(const T& a, const T& b) {
  return -maximum<T>(-a, -b);
}

/// `better`, where the golden value avoids a cancellation that kernels do not: in Bound with the error of the
/// form that is `usual`, if that is larger.
template <class T, class F, class G>
T without_cancellation(F better, G usual) {
  const T value = better();
  if constexpr (std::is_same_v<T, Bound>) return settled(value.value, worse(value.error, usual().error));
  if constexpr (is_lanes<T>) return with_larger_error(value, usual());
  return value;
}

/// A sum that kernels may have at once or in parts that are stored: in Bound with the larger error.
template <class T, class F, class G>
T at_once_or(F at_once, G in_parts) {
  return without_cancellation<T>(at_once, in_parts);
}

/// What kernels compute in one form or in another that loses about as much: in Bound with the larger error;
/// with that of the first where the error model is quick.
template <class T, class F, class G>
T either(F one, G other) {
  if constexpr (std::is_same_v<T, Bound>) {
    if (ErrorScope::current().quick) return one();
  }
  if constexpr (is_lanes<T>) return one();
  return without_cancellation<T>(one, other);
}

/// f(x) of an f from double to double that rises or falls in steps, the steps at numbers of less than 53
/// bits, and is itself exact (a rounding to a coarser format): in Bound with its change over all that a
/// device may hold for x.
template <class T, class F>
T stepped(const T& x, F f) {
  if constexpr (std::is_same_v<T, Bound>) {
    const double value = f(x.value);
    const auto change = [&](double v) {
      const double other = f(v);
      return other == value ? 0 : std::abs(other - value);
    };
    if (x.error == 0) return settled(value, 0);
    return settled(value, worse(change(std::nextafter(x.value - x.error, -infinity)),
                                change(std::nextafter(x.value + x.error, infinity))));
  } else if constexpr (std::is_same_v<T, Truth>) {
    return f(to_odd(x));
  } else {
    return static_cast<T>(f(static_cast<double>(x)));
  }
}

/// f(0) .. f(n - 1)
template <class T, class F>
std::vector<T> terms_of(std::int64_t n, F f) {
  std::vector<T> terms;
  terms.reserve(static_cast<std::size_t>(n));
  for (std::int64_t i = 0; i < n; ++i) terms.push_back(f(i));
  return terms;
}

/// sum f(i), i < n, from +0. In float and double: left to right as written, unless the thread's
/// SummationScope says otherwise. In Bound: as the device's accumulator may have it. In Unrounded: exact.
template <class T, class F>
T sum(std::int64_t n, F f) {
  if constexpr (std::is_same_v<T, Bound>) {
    const ErrorModel& device = ErrorScope::current();
    if (device.quick && !device.accumulator && !device.own) {
      double value = 0, error = 0, squares = 0;
      for (std::int64_t i = 0; i < n; ++i) {
        const Bound term = f(i);
        value += term.value;
        error += term.error;
        squares += term.value * term.value;
      }
      return settled(value, error + least_loss(n, value, squares, device.unit_roundoff));
    }
    return accumulate(device, terms_of<Bound>(n, f));
  } else if constexpr (is_lanes<T>) {
    return sum_of_lanes<T>(n, f);
  } else if constexpr (std::is_same_v<T, Unrounded>) {
    UnroundedSum total(0);
    total.add(n, f);
    return total.value();
  } else {
    if constexpr (!std::is_same_v<T, Truth>) {
      if (const Summation* how = SummationScope::current()) {
        return add_up(*how, std::span<const T>(terms_of<T>(n, f)));
      }
    }
    T total = T(0);
    for (std::int64_t i = 0; i < n; ++i) total += f(i);
    return total;
  }
}

/// sum f(i), i < n, which kernels may also add up in memory, in any order: in Bound with a narrow store of
/// the whole, and of n - 2 sums before it that are no larger than all terms together.
template <class T, class F>
T sum_in_memory(std::int64_t n, F f) {
  const T total = sum<T>(n, f);
  if constexpr (std::is_same_v<T, Bound>) {
    const double loss = ErrorScope::current().stored_roundoff;
    if (loss == 0 || n < 2) return total;
    double all = 0;
    for (std::int64_t i = 0; i < n; ++i) {
      const Bound term = f(i);
      all += std::abs(term.value) + term.error;
    }
    const double before = static_cast<double>(n - 2) * loss * all;
    return stored(settled(total.value, total.error + before));
  }
  return total;
}

}  // namespace assay
