#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <memory>
#include <utility>

#include "assay/golden/bound.h"
#include "assay/golden/exact_sum.h"

namespace assay {

/// A real number that is not rounded to float64 yet: it is the float64 nearest to it and what that leaves,
/// which is such a number again. Equal numbers so have equal parts. Sums and differences are exact; every
/// other operation takes its operands rounded to float64, and rounds: products of two float32 lose nothing.
class Unrounded {
 public:
  Unrounded(double value = 0) : nearest_(value) {}  // NOLINT: every double is an Unrounded
  /// @param nearest  the float64 nearest to the sum of both, if `rest` is not 0
  Unrounded(double nearest, const Unrounded& rest)
      : nearest_(nearest), second_(rest.nearest_), third_(rest.second_) {
    if (rest.third_ != 0) further_ = std::make_unique<Unrounded>(rest.third_, rest.beyond());
  }
  Unrounded(const Unrounded& x)
      : nearest_(x.nearest_),
        second_(x.second_),
        third_(x.third_),
        further_(x.further_ ? std::make_unique<Unrounded>(*x.further_) : nullptr) {}
  Unrounded(Unrounded&&) = default;
  Unrounded& operator=(const Unrounded& x) { return *this = Unrounded(x); }
  Unrounded& operator=(Unrounded&&) = default;
  ~Unrounded() = default;

  double nearest() const { return nearest_; }
  /// f of each part but the nearest, none of them 0, in their order.
  template <class F>
  void for_rest(F f) const {
    if (second_ == 0) return;
    f(second_);
    if (third_ == 0) return;
    f(third_);
    if (!further_) return;
    f(further_->nearest_);
    further_->for_rest(f);
  }
  /// Rounded once, to nearest even; an integer dtype clamps.
  double round(DType dtype) const { return round_to(dtype, before(dtype)); }
  /// A float64 that rounds to this dtype as the number does.
  double before(DType) const;

  friend Unrounded operator+(const Unrounded&, const Unrounded&);
  friend Unrounded operator-(const Unrounded& a, const Unrounded& b) { return a + -b; }
  friend Unrounded operator*(const Unrounded& a, const Unrounded& b) { return a.nearest_ * b.nearest_; }
  friend Unrounded operator/(const Unrounded& a, const Unrounded& b) { return a.nearest_ / b.nearest_; }
  Unrounded operator-() const;
  Unrounded& operator*=(const Unrounded& x) { return *this = *this * x; }
  Unrounded& operator/=(const Unrounded& x) { return *this = *this / x; }
  friend Unrounded sqrt(const Unrounded& x) { return std::sqrt(x.nearest_); }
  friend Unrounded exp(const Unrounded& x) { return std::exp(x.nearest_); }
  friend bool operator<(const Unrounded& a, const Unrounded& b) { return a.nearest_ < b.nearest_; }

 private:
  Unrounded beyond() const { return further_ ? *further_ : Unrounded(); }

  // More than three parts are rare.
  double nearest_, second_ = 0, third_ = 0;
  std::unique_ptr<Unrounded> further_ = {};
};

/// Adds x to `sum`, and returns what that loses, exactly. Nothing may overflow.
inline double add_to(double& sum, double x) {
  const double before = sum;
  sum += x;
  return rounding_of_sum(before, x, sum);
}

/// An exact sum, in any order, at a few times the cost of a rounded one: ExactSum is for what is left over.
/// NaN, infinities and signed zeros as there.
class UnroundedSum {
 public:
  /// @param start  -0 changes no sum, not even one of -0
  explicit UnroundedSum(double start = -0.0) : high_(start) {}

  /// f(0) .. f(n - 1), float64 or Unrounded
  template <class F>
  void add(std::int64_t n, F f) {
    double high = high_, low = low_;  // in registers
    for (std::int64_t i = 0; i < n; ++i) {
      const Unrounded& term = f(i);
      const double x = term.nearest();
      if (std::abs(x) < large) {
        const double lost = add_to(low, add_to(high, x));
        if (lost != 0) add_aside(lost);
      } else {
        add_aside(x);
      }
      term.for_rest([&](double part) { add_aside(part); });
    }
    high_ = high;
    low_ = low;
  }
  /// Throws Error if a sum of finite terms is beyond float64.
  Unrounded value() const;

 private:
  void add_aside(double x);

  static constexpr double large = 0x1p960;  // no sum of 2^60 terms below it overflows
  // Apart, or g++ 12 keeps both in one vector through the loop, at three times its duration.
  double high_;
  std::unique_ptr<ExactSum> aside_;
  double low_ = 0;
  std::array<double, 2> lower_ = {};
  double not_finite_ = 0;  // the sum of the infinite terms and NaN
};

}  // namespace assay
