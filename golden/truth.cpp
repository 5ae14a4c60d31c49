#include "assay/golden/truth.h"

#include <boost/multiprecision/mpfr.hpp>
#include <new>

namespace assay {
namespace {
namespace mp = boost::multiprecision;
using Number = mp::number<mp::mpfr_float_backend<50>, mp::et_off>;

// MPFR keeps integers and constants for the next call of a thread, and does not give them back with the
// thread.
struct Kept {
  ~Kept() { mpfr_free_cache2(MPFR_FREE_LOCAL_CACHE); }
};
}  // namespace

struct Truth::Access {
  static_assert(sizeof(Number) <= sizeof(Truth::storage_) && alignof(Number) <= alignof(Truth));
  static Number& of(Truth& t) { return *std::launder(reinterpret_cast<Number*>(t.storage_)); }
  static const Number& of(const Truth& t) {
    return *std::launder(reinterpret_cast<const Number*>(t.storage_));
  }
  static Truth make(Number value) {
    thread_local const Kept kept;
    static_cast<void>(kept);
    Truth t{Uninitialised{}};
    new (t.storage_) Number(std::move(value));
    return t;
  }
};

Truth::Truth(double value) {
  new (storage_) Number(value);
}
Truth::Truth(const Truth& other) {
  new (storage_) Number(Access::of(other));
}
Truth& Truth::operator=(const Truth& other) {
  if (this != &other) Access::of(*this) = Access::of(other);
  return *this;
}
Truth::~Truth() {
  Access::of(*this).~Number();
}

Truth Truth::parse(const std::string& digits) {
  return Access::make(Number(digits));
}

Truth::operator double() const {
  return Access::of(*this).convert_to<double>();
}

Truth& Truth::operator+=(const Truth& b) {
  Access::of(*this) += Access::of(b);
  return *this;
}
Truth& Truth::operator-=(const Truth& b) {
  Access::of(*this) -= Access::of(b);
  return *this;
}
Truth& Truth::operator*=(const Truth& b) {
  Access::of(*this) *= Access::of(b);
  return *this;
}
Truth& Truth::operator/=(const Truth& b) {
  Access::of(*this) /= Access::of(b);
  return *this;
}
Truth Truth::operator-() const {
  return Access::make(-Access::of(*this));
}

bool operator==(const Truth& a, const Truth& b) {
  return Truth::Access::of(a) == Truth::Access::of(b);
}
bool operator<(const Truth& a, const Truth& b) {
  return Truth::Access::of(a) < Truth::Access::of(b);
}
bool operator<=(const Truth& a, const Truth& b) {
  return Truth::Access::of(a) <= Truth::Access::of(b);
}

Truth sqrt(const Truth& x) {
  return Truth::Access::make(mp::sqrt(Truth::Access::of(x)));
}
Truth exp(const Truth& x) {
  return Truth::Access::make(mp::exp(Truth::Access::of(x)));
}
Truth log(const Truth& x) {
  return Truth::Access::make(mp::log(Truth::Access::of(x)));
}
Truth log1p(const Truth& x) {
  return Truth::Access::make(mp::log1p(Truth::Access::of(x)));
}
Truth expm1(const Truth& x) {
  return Truth::Access::make(mp::expm1(Truth::Access::of(x)));
}
Truth tanh(const Truth& x) {
  return Truth::Access::make(mp::tanh(Truth::Access::of(x)));
}
Truth erf(const Truth& x) {
  return Truth::Access::make(mp::erf(Truth::Access::of(x)));
}
Truth erfc(const Truth& x) {
  return Truth::Access::make(mp::erfc(Truth::Access::of(x)));
}
Truth sin(const Truth& x) {
  return Truth::Access::make(mp::sin(Truth::Access::of(x)));
}
Truth cos(const Truth& x) {
  return Truth::Access::make(mp::cos(Truth::Access::of(x)));
}
Truth pow(const Truth& x, const Truth& y) {
  return Truth::Access::make(mp::pow(Truth::Access::of(x), Truth::Access::of(y)));
}
Truth abs(const Truth& x) {
  return Truth::Access::make(mp::abs(Truth::Access::of(x)));
}
Truth floor(const Truth& x) {
  return Truth::Access::make(mp::floor(Truth::Access::of(x)));
}
bool isnan(const Truth& x) {
  return (mp::isnan)(Truth::Access::of(x));
}
bool isinf(const Truth& x) {
  return (mp::isinf)(Truth::Access::of(x));
}

}  // namespace assay
