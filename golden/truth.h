#pragma once

#include <cstddef>
#include <string>

namespace assay {

/// A real number to 50 significant decimal digits (Boost.Multiprecision over MPFR): the truth that double and
/// float results are held against. Boost stays inside truth.cpp.
class Truth {
 public:
  Truth(double = 0);  // NOLINT: every double is a Truth
  Truth(const Truth&);
  Truth& operator=(const Truth&);
  ~Truth();
  /// Decimal digits, e.g. "0.1"; for constants that no double holds. Throws std::runtime_error if it is no
  /// number.
  static Truth parse(const std::string&);

  explicit operator double() const;

  Truth& operator+=(const Truth&);
  Truth& operator-=(const Truth&);
  Truth& operator*=(const Truth&);
  Truth& operator/=(const Truth&);
  friend Truth operator+(Truth a, const Truth& b) { return a += b; }
  friend Truth operator-(Truth a, const Truth& b) { return a -= b; }
  friend Truth operator*(Truth a, const Truth& b) { return a *= b; }
  friend Truth operator/(Truth a, const Truth& b) { return a /= b; }
  Truth operator-() const;

  friend bool operator==(const Truth&, const Truth&);
  friend bool operator<(const Truth&, const Truth&);
  friend bool operator>(const Truth& a, const Truth& b) { return b < a; }
  friend bool operator<=(const Truth&, const Truth&);
  friend bool operator>=(const Truth& a, const Truth& b) { return b <= a; }

  friend Truth sqrt(const Truth&);
  friend Truth exp(const Truth&);
  friend Truth log(const Truth&);
  friend Truth log1p(const Truth&);
  friend Truth expm1(const Truth&);
  friend Truth tanh(const Truth&);
  friend Truth erf(const Truth&);
  friend Truth erfc(const Truth&);
  friend Truth sin(const Truth&);
  friend Truth cos(const Truth&);
  friend Truth pow(const Truth&, const Truth&);
  friend Truth abs(const Truth&);
  friend Truth floor(const Truth&);
  friend bool isnan(const Truth&);
  friend bool isinf(const Truth&);

 private:
  struct Uninitialised {};
  explicit Truth(Uninitialised) {}
  struct Access;
  alignas(8) std::byte storage_[32];  // one mpfr_t; checked in truth.cpp
};

}  // namespace assay
