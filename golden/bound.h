#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>

#include "assay/golden/accumulator.h"

namespace assay {

/// The arithmetic of the device whose errors are bounded. Gradual underflow is assumed: a device that flushes
/// subnormals to zero may lose more. Overflow is not modelled: a device's infinity is within no finite bound.
struct ErrorModel {
  double unit_roundoff;  ///< u of the accumulator: 2^-24 for float32
  double min_subnormal;  ///< what an underflow may lose: 2^-149 for float32
  /// Of sums; nothing: they are rounded like all else, in any order.
  std::optional<Accumulator> accumulator = {};
  /// Of the format in which intermediate results are kept (stored() in arithmetic.h); 0: as they are.
  double stored_roundoff = 0;
  /// Not of a device but of these very float64 values: an operation that rounds nothing adds no error.
  bool own = false;
  /// The part of each error that one pass over the terms tells: never more than the whole, at a fraction of
  /// its price. What is within it needs no more.
  bool quick = false;
};

inline const ErrorModel float32_device{0x1p-24, 0x1p-149};

/// The largest finite number of the device's format, (2 - 2u) 2^emax. Its u is 2^-p, its smallest subnormal
/// 2^(2 - emax - p) (IEEE 754, emin = 1 - emax).
inline double largest_finite(const ErrorModel& device) {
  const double power = 4 * device.unit_roundoff / device.min_subnormal;
  return 2 * power * (1 - device.unit_roundoff);
}

/// Largest error of a conforming device function in ulp. OpenCL C 3.0, table 65 (full profile); CUDA's are no
/// larger (CUDA C++ Programming Guide, mathematical functions), nor are the host's (glibc manual, "Known
/// maximum errors in math functions"). 1 ulp is at most 2u relative.
namespace ulps {
inline constexpr double divide = 2.5, square_root = 3, exp = 3, log = 3, log1p = 2, expm1 = 3, tanh = 5,
                        erf = 16, sin = 4, cos = 4, pow = 16;
}

/// A value with a bound on the error that a correct kernel may have made on the way to it, for any order of
/// its sums. Running error analysis (Higham 2002, sec. 3.3): every operation adds its own rounding, of the
/// largest result possible, to what it inherits. The device's model is the thread's ErrorScope; value and
/// error are computed in double, whose own rounding of the error (some 2^-53 of it) is not counted.
/// An infinite error: nothing is guaranteed (an operand may leave the function's domain). An infinite value
/// that every operand within its error leads to has the error 0: kernels have it too. NaN has the error NaN.
struct Bound {
  double value = 0;
  double error = 0;

  Bound() = default;
  Bound(double v) : value(v) {}  // NOLINT: constants are exact
  Bound(double v, double e) : value(v), error(e) {}
  explicit operator double() const { return value; }

  Bound& operator+=(const Bound&);
  Bound& operator-=(const Bound&);
  Bound& operator*=(const Bound&);
  Bound& operator/=(const Bound&);
  friend Bound operator+(Bound a, const Bound& b) { return a += b; }
  friend Bound operator-(Bound a, const Bound& b) { return a -= b; }
  friend Bound operator*(Bound a, const Bound& b) { return a *= b; }
  friend Bound operator/(Bound a, const Bound& b) { return a /= b; }
  Bound operator-() const { return {-value, error}; }

  friend bool operator==(const Bound& a, const Bound& b) { return a.value == b.value; }
  friend bool operator<(const Bound& a, const Bound& b) { return a.value < b.value; }
  friend bool operator>(const Bound& a, const Bound& b) { return a.value > b.value; }
  friend bool operator<=(const Bound& a, const Bound& b) { return a.value <= b.value; }
  friend bool operator>=(const Bound& a, const Bound& b) { return a.value >= b.value; }

  friend Bound sqrt(const Bound&);
  friend Bound exp(const Bound&);
  friend Bound log(const Bound&);
  friend Bound log1p(const Bound&);
  friend Bound expm1(const Bound&);
  friend Bound tanh(const Bound&);
  friend Bound erf(const Bound&);
  friend Bound erfc(const Bound&);
  friend Bound sin(const Bound&);
  friend Bound cos(const Bound&);
  friend Bound pow(const Bound&, const Bound&);
  friend Bound abs(const Bound& x) { return {std::abs(x.value), x.error}; }
  friend Bound floor(const Bound&);
  friend bool isnan(const Bound& x) { return std::isnan(x.value); }
  friend bool isinf(const Bound& x) { return std::isinf(x.value); }

 private:
  Bound& multiply_carefully(const Bound&);
};

/// a + b - sum exactly, where sum is a + b rounded (Knuth's TwoSum; Higham 2002, sec. 4.3)
inline double rounding_of_sum(double a, double b, double sum) {
  const double back = sum - a;
  return (a - (sum - back)) + (b - back);
}

/// Whether a narrow store leaves the number as it is.
bool fits_narrow(double);

/// A constant with the error of rounding it to the device's format: none where it fits.
Bound rounded_constant(double);

/// The larger one, with the error of whichever wins on the device; NaN if either is.
Bound larger(const Bound&, const Bound&);
/// The larger error; NaN if either is.
inline double worse(double a, double b) {
  return std::isnan(a) || a > b ? a : b;
}
/// A value with the error collected on the way, by the rules of Bound: an error that is no number is
/// infinite, and a finite one of an infinite value is 0.
inline Bound settled(double value, double error) {
  if (std::isnan(value)) return {value, value};
  if (std::isnan(error)) return {value, std::numeric_limits<double>::infinity()};
  return {value, std::isinf(value) && std::isfinite(error) ? 0 : error};
}

/// Sets the calling thread's error model until the end of the scope. Every thread starts with float32's: one
/// that computes Bounds sets its own.
class ErrorScope {
 public:
  explicit ErrorScope(const ErrorModel&);
  ~ErrorScope();
  ErrorScope(const ErrorScope&) = delete;
  ErrorScope& operator=(const ErrorScope&) = delete;
  static const ErrorModel& current() { return *current_; }

 private:
  static constinit thread_local const ErrorModel* current_;
  ErrorModel model_;
  const ErrorModel* outer_;
};

/// The value as it is after a narrow store.
inline Bound stored_narrow(const Bound& x) {
  const double loss = ErrorScope::current().stored_roundoff;
  if (loss == 0 || !std::isfinite(x.value)) return x;
  return settled(x.value, x.error + loss * (std::abs(x.value) + x.error));
}

// Additions and products are most of what bounds are made of.
inline Bound& Bound::operator+=(const Bound& b) {
  const ErrorModel& device = ErrorScope::current();
  const double total = value + b.value, inherited = error + b.error;
  // sums do not underflow (Higham 2002, sec. 2.1)
  double lost = 0;
  if (std::isfinite(total)) {
    lost = device.unit_roundoff * (std::abs(total) + inherited);
    const double exactly =
        device.own ? rounding_of_sum(value, b.value, total) : std::numeric_limits<double>::infinity();
    if (std::isfinite(exactly)) lost = std::abs(exactly);
  }
  return *this = settled(total, inherited + lost);
}

inline Bound& Bound::operator-=(const Bound& b) {
  return *this += -b;
}

inline Bound& Bound::operator*=(const Bound& b) {
  const ErrorModel& device = ErrorScope::current();
  const double product = value * b.value;
  const double inherited = std::abs(value) * b.error + std::abs(b.value) * error + error * b.error;
  if (device.own || !std::isfinite(product) || !std::isfinite(inherited)) return multiply_carefully(b);
  const double rounding = device.unit_roundoff * (std::abs(product) + inherited) + device.min_subnormal;
  return *this = {product, inherited + rounding};
}

}  // namespace assay
