#include "assay/golden/bound.h"
#include "assay/golden/dtype.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace assay {
namespace {

double u() {
  return ErrorScope::current().unit_roundoff;
}

// The rounding of one result, of at most this magnitude: relative to it, or an underflow.
double rounding(double magnitude, double ulp = 0.5) {
  return 2 * ulp * u() * magnitude + ErrorScope::current().min_subnormal;
}

// A result that inherits an error and is then rounded.
Bound rounded(double value, double inherited, double ulp = 0.5) {
  if (!std::isfinite(value)) return settled(value, inherited);
  return settled(value, inherited + rounding(std::abs(value) + inherited, ulp));
}

// |a - b|, 0 between equal infinities.
double distance(double a, double b) {
  return a == b ? 0 : std::abs(a - b);
}

struct Ends {
  double low, high;
};
// Rounded outwards: an error below half a unit in the last place must not vanish.
Ends ends(const Bound& x) {
  if (x.error == 0) return {x.value, x.value};
  return {std::nextafter(x.value - x.error, -infinity), std::nextafter(x.value + x.error, infinity)};
}

// An inherited error that is small beside the value is the error of x times the steepest slope in reach; a
// difference of two float64 would be mostly their own rounding. 2^-10 of it covers the rounding of the slope.
constexpr double small_share = 0x1p-20, slope_slack = 1 + 0x1p-10;

// f at a point known to +-error, f monotone.
// @param steepest  the largest |f'| between two points, from these and f at x
template <class F, class G>
Bound monotone(const Bound& x, F f, G steepest, double ulp) {
  const double value = f(x.value);
  if (x.error == 0) return rounded(value, 0, ulp);
  const Ends at = ends(x);
  const double by_slope = x.error * steepest(at, value) * slope_slack;
  if (by_slope <= small_share * std::abs(value)) return rounded(value, by_slope, ulp);
  return rounded(value, worse(distance(f(at.low), value), distance(f(at.high), value)), ulp);
}

// The smallest magnitude in the interval.
double nearest_to_zero(const Ends& at) {
  return at.low <= 0 && at.high >= 0 ? 0 : std::min(std::abs(at.low), std::abs(at.high));
}

// The same for f(x, y), monotone in either.
template <class F>
double largest_change(const Bound& x, const Bound& y, F f) {
  const double value = f(x.value, y.value);
  const Ends a = ends(x), b = ends(y);
  return worse(worse(distance(f(a.low, b.low), value), distance(f(a.low, b.high), value)),
               worse(distance(f(a.high, b.low), value), distance(f(a.high, b.high), value)));
}

}  // namespace

constinit thread_local const ErrorModel* ErrorScope::current_ = &float32_device;

ErrorScope::ErrorScope(const ErrorModel& model) : model_(model), outer_(current_) {
  current_ = &model_;
}
ErrorScope::~ErrorScope() {
  current_ = outer_;
}

bool fits_narrow(double value) {
  const double u = ErrorScope::current().stored_roundoff;
  int exponent = 0;
  const double units = std::frexp(value, &exponent) / u;
  return u == 0 || units == std::floor(units);
}

Bound rounded_constant(double value) {
  int exponent = 0;
  const auto is_whole = [](double units) { return units == std::floor(units); };
  const bool fits =
      is_whole(std::frexp(value, &exponent) / u()) && is_whole(value / ErrorScope::current().min_subnormal);
  return fits ? Bound(value) : rounded(value, 0);
}

Bound& Bound::multiply_carefully(const Bound& b) {
  const double product = value * b.value;
  const double inherited = std::isinf(product)
                               ? largest_change(*this, b, [](double x, double y) { return x * y; })
                               : std::abs(value) * b.error + std::abs(b.value) * error + error * b.error;
  // The remainder of a product is a float64 unless it underflows.
  const bool has_remainder = product == 0 ? value == 0 || b.value == 0 : std::abs(product) > 0x1p-960;
  if (ErrorScope::current().own && has_remainder)
    return *this = settled(product, inherited + std::abs(std::fma(value, b.value, -product)));
  return *this = rounded(product, inherited);
}

Bound& Bound::operator/=(const Bound& b) {
  const double quotient = value / b.value;
  const double room = std::abs(b.value) - b.error;
  // (a+da)/(b+db) - a/b = (da - q db) / (b+db)
  double inherited = room > 0 ? (error + std::abs(quotient) * b.error) / room : infinity;
  if (std::isinf(quotient)) inherited = largest_change(*this, b, [](double x, double y) { return x / y; });
  const bool no_underflow = value == 0 || std::abs(value) > 0x1p-960;
  if (ErrorScope::current().own && std::fma(quotient, b.value, -value) == 0 && no_underflow) {
    return *this = settled(quotient, inherited);
  }
  return *this = rounded(quotient, inherited, ulps::divide);
}

Bound larger(const Bound& a, const Bound& b) {
  if (isnan(a) || isnan(b)) return settled(a.value + b.value, 0);
  const Bound &most = b < a ? a : b, &other = b < a ? b : a;
  const double gap =
      most.value == other.value ? 0 : other.value - most.value;  // <= 0; none between infinities
  // Up to the most that either may be, down to the least that both are.
  const double up = std::max(most.error, gap + other.error);
  const double down = std::max(0.0, std::min(most.error, other.error - gap));
  return settled(most.value, worse(up, down));
}

Bound sqrt(const Bound& x) {
  const double value = std::sqrt(x.value);
  if (ErrorScope::current().own && x.error == 0 && std::fma(value, value, -x.value) == 0) return value;
  // A value within its error of zero has nothing below.
  const auto root = [](double v) { return v < 0 ? 0.0 : std::sqrt(v); };
  const auto steepest = [](const Ends& at, double) {
    return at.low > 0 ? 0.5 / std::sqrt(at.low) : infinity;
  };
  if (!(x.value >= 0)) return rounded(value, x.error, ulps::square_root);
  return monotone(x, root, steepest, ulps::square_root);
}
Bound exp(const Bound& x) {
  // e^(x + d) <= e^x (1 + 2 d) for d up to 1
  const auto steepest = [&](const Ends& at, double value) {
    return x.error <= 1 ? value * (1 + 2 * x.error) : std::exp(at.high);
  };
  return monotone(
      x, [](double v) { return std::exp(v); }, steepest, ulps::exp);
}
Bound log(const Bound& x) {
  const auto steepest = [](const Ends& at, double) { return at.low > 0 ? 1 / at.low : infinity; };
  return monotone(
      x, [](double v) { return std::log(v); }, steepest, ulps::log);
}
Bound log1p(const Bound& x) {
  const auto steepest = [](const Ends& at, double) { return at.low > -1 ? 1 / (1 + at.low) : infinity; };
  return monotone(
      x, [](double v) { return std::log1p(v); }, steepest, ulps::log1p);
}
Bound expm1(const Bound& x) {
  const auto steepest = [](const Ends& at, double) { return std::exp(at.high); };
  return monotone(
      x, [](double v) { return std::expm1(v); }, steepest, ulps::expm1);
}
Bound tanh(const Bound& x) {
  const auto steepest = [](const Ends& at, double) {
    return 1 / std::pow(std::cosh(nearest_to_zero(at)), 2);
  };
  return monotone(
      x, [](double v) { return std::tanh(v); }, steepest, ulps::tanh);
}
Bound erf(const Bound& x) {
  const auto steepest = [](const Ends& at, double) {
    return 2 / std::sqrt(std::numbers::pi) * std::exp(-std::pow(nearest_to_zero(at), 2));
  };
  return monotone(
      x, [](double v) { return std::erf(v); }, steepest, ulps::erf);
}
Bound erfc(const Bound& x) {
  const auto steepest = [](const Ends& at, double) {
    return 2 / std::sqrt(std::numbers::pi) * std::exp(-std::pow(nearest_to_zero(at), 2));
  };
  return monotone(
      x, [](double v) { return std::erfc(v); }, steepest, ulps::erf);
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
  const auto power = [](double a, double b) { return std::pow(a, b); };
  const double value = power(x.value, y.value);
  if (x.error == 0 && y.error == 0) return rounded(value, 0, ulps::pow);
  const Ends base = ends(x), exponent = ends(y);
  if (base.low <= 0 && base.high >= 0 && exponent.low < 0)
    return rounded(value, infinity, ulps::pow);  // a pole
  // d(x^y) = x^y (y dx / x + ln x dy), at its steepest
  const double steepest =
      base.low > 0 ? std::max(std::abs(exponent.low), std::abs(exponent.high)) / base.low * x.error +
                         std::max(std::abs(std::log(base.low)), std::abs(std::log(base.high))) * y.error
                   : infinity;
  if (steepest <= small_share) return rounded(value, std::abs(value) * steepest * slope_slack, ulps::pow);
  return rounded(value, largest_change(x, y, power), ulps::pow);
}
// An integer: not rounded, but another one where the error reaches it.
Bound floor(const Bound& x) {
  const double value = std::floor(x.value);
  const Ends at = ends(x);
  return settled(value, worse(distance(std::floor(at.low), value), distance(std::floor(at.high), value)));
}

}  // namespace assay
