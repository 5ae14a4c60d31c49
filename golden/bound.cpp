#include "assay/golden/bound.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace assay {
namespace {

constexpr ErrorModel float32_model{0x1p-24, 0x1p-149};
thread_local const ErrorModel* current_model = &float32_model;

double u() {
  return ErrorScope::current().unit_roundoff;
}

// Largest error of a conforming device function in ulp. OpenCL C 3.0, table 65 (full profile); CUDA's are no
// larger (CUDA C++ Programming Guide, mathematical functions). 1 ulp is at most 2u relative.
namespace ulps {
constexpr double divide = 2.5, square_root = 3, exp = 3, log = 3, log1p = 2, expm1 = 3, tanh = 5, erf = 16,
                 sin = 4, cos = 4, pow = 16;
}

// The rounding of one result, of at most this magnitude: relative to it, or an underflow.
double rounding(double magnitude, double ulp = 0.5) {
  return 2 * ulp * u() * magnitude + ErrorScope::current().min_subnormal;
}

// A result that inherits an error and is then rounded.
Bound rounded(double value, double inherited, double ulp = 0.5) {
  return {value, inherited + rounding(std::abs(value) + inherited, ulp)};
}

// f at a point known to +-error: the largest change over the interval's ends serves where f is monotone.
template <class F>
Bound monotone(const Bound& x, F f, double ulp) {
  const double value = f(x.value);
  if (x.error == 0) return rounded(value, 0, ulp);
  const double below = std::abs(f(x.value - x.error) - value), above = std::abs(f(x.value + x.error) - value);
  const double inherited = std::max(below, above);
  // Outside the domain (log or sqrt reached below zero) nothing is guaranteed.
  if (std::isnan(inherited) && !std::isnan(value)) return {value, std::numeric_limits<double>::infinity()};
  return rounded(value, inherited, ulp);
}

}  // namespace

double gamma(double n, double unit_roundoff) {
  const double nu = n * unit_roundoff;
  return nu < 1 ? nu / (1 - nu) : std::numeric_limits<double>::infinity();
}

ErrorScope::ErrorScope(const ErrorModel& model) : model_(model), outer_(current_model) {
  current_model = &model_;
}
ErrorScope::~ErrorScope() {
  current_model = outer_;
}
const ErrorModel& ErrorScope::current() {
  return *current_model;
}

Bound rounded_constant(double value) {
  int exponent = 0;
  const double units = std::frexp(value, &exponent) / u();  // whole where no bit is beyond the precision
  return units == std::floor(units) ? Bound(value) : rounded(value, 0);
}

Bound& Bound::operator+=(const Bound& b) {
  value += b.value;
  error += b.error;
  error += u() * (std::abs(value) + error);  // sums do not underflow (Higham 2002, sec. 2.1)
  return *this;
}

Bound& Bound::operator-=(const Bound& b) {
  return *this += -b;
}

Bound& Bound::operator*=(const Bound& b) {
  const double product = value * b.value;
  return *this = rounded(product, std::abs(value) * b.error + std::abs(b.value) * error + error * b.error);
}

Bound& Bound::operator/=(const Bound& b) {
  const double quotient = value / b.value;
  const double room = std::abs(b.value) - b.error;
  // (a+da)/(b+db) - a/b = (da - q db) / (b+db)
  const double inherited =
      room > 0 ? (error + std::abs(quotient) * b.error) / room : std::numeric_limits<double>::infinity();
  return *this = rounded(quotient, inherited, ulps::divide);
}

Bound sqrt(const Bound& x) {
  const double value = std::sqrt(x.value);
  const double below = value - std::sqrt(std::max(0.0, x.value - x.error));
  // The slope is steeper below; but a value within its error of zero has nothing there.
  const double above = std::sqrt(x.value + x.error) - value;
  return rounded(value, std::max(below, above), ulps::square_root);
}
Bound exp(const Bound& x) {
  return monotone(
      x, [](double v) { return std::exp(v); }, ulps::exp);
}
Bound log(const Bound& x) {
  return monotone(
      x, [](double v) { return std::log(v); }, ulps::log);
}
Bound log1p(const Bound& x) {
  return monotone(
      x, [](double v) { return std::log1p(v); }, ulps::log1p);
}
Bound expm1(const Bound& x) {
  return monotone(
      x, [](double v) { return std::expm1(v); }, ulps::expm1);
}
Bound tanh(const Bound& x) {
  return monotone(
      x, [](double v) { return std::tanh(v); }, ulps::tanh);
}
Bound erf(const Bound& x) {
  return monotone(
      x, [](double v) { return std::erf(v); }, ulps::erf);
}
// |sin'|, |cos'| <= 1
Bound sin(const Bound& x) {
  const double value = std::sin(x.value);
  return rounded(value, x.error, ulps::sin);
}
Bound cos(const Bound& x) {
  const double value = std::cos(x.value);
  return rounded(value, x.error, ulps::cos);
}
Bound pow(const Bound& x, const Bound& y) {
  const double value = std::pow(x.value, y.value);
  double inherited = 0;
  for (const double dx : {-x.error, x.error}) {
    for (const double dy : {-y.error, y.error}) {
      inherited = std::max(inherited, std::abs(std::pow(x.value + dx, y.value + dy) - value));
    }
  }
  return rounded(value, inherited, ulps::pow);
}
Bound abs(const Bound& x) {
  return {std::abs(x.value), x.error};
}
bool isnan(const Bound& x) {
  return std::isnan(x.value);
}
bool isinf(const Bound& x) {
  return std::isinf(x.value);
}

}  // namespace assay
