// The bulk operations of ExactSum. A block of a few thousand elements becomes a few float64 that carry its
// sum exactly, and those go into the superaccumulator.
//
// 1. The elements are added in float64 as they come. The processor's inexact flag (IEEE 754-2019, 7.6) tells
//    whether any addition rounded; if none did, the sum is exact. So it is for most blocks of float32: 24
//    bits each, some 15 binades apart, 12 bits of carries.
// 2. If one did, the block is split. An anchor S far above every x takes x's high part, the rest r is exact:
//    t = fl(S + x), h = t - S, r = x - h (Dekker 1971; Rump, Ogita and Oishi 2008, "Accurate floating-point
//    summation I", sec. 3). The rests, some 40 bits lower, start again at 1 until no addition rounds.
// NaN, infinities and what comes near overflow are added one by one.
#include <algorithm>
#include <bit>
#include <cfenv>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>

#include "assay/golden/error.h"
#include "assay/golden/exact_sum.h"
#include "assay/golden/float_environment.h"

// NEON is what aarch64 always has; SVE's vectors have no fixed size and were not tried.
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "assay/golden/exact_sum_simd.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace assay {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using Doubles = hn::ScalableTag<double>;
using Vector = hn::Vec<Doubles>;

Vector load(const double* x) {
  return hn::LoadU(Doubles(), x);
}
Vector load(const float* x) {
  return hn::PromoteTo(Doubles(), hn::LoadU(hn::Rebind<float, Doubles>(), x));
}

// What is split: x, or a b, which is exact in float64 for float32 factors, so that fusing changes nothing.
template <class T>
struct Terms {
  const T* x;
  Vector added_to(Vector s, std::size_t i) const { return hn::Add(s, load(x + i)); }
  Vector minus(Vector h, std::size_t i) const { return hn::Sub(load(x + i), h); }
  double operator[](std::size_t i) const { return static_cast<double>(x[i]); }
};
struct Products {
  const float *a, *b;
  Vector added_to(Vector s, std::size_t i) const { return hn::MulAdd(load(a + i), load(b + i), s); }
  Vector minus(Vector h, std::size_t i) const { return hn::MulSub(load(a + i), load(b + i), h); }
  double operator[](std::size_t i) const { return static_cast<double>(a[i]) * static_cast<double>(b[i]); }
};

// The sum in some order. From -0, so that only a sum of nothing but -0 is -0.
template <class Source>
double sum_of(const Source& terms, std::size_t n) {
  const Doubles d;
  const std::size_t lanes = hn::Lanes(d);
  Vector s0 = hn::Set(d, -0.0), s1 = s0, s2 = s0, s3 = s0;
  std::size_t i = 0;
  for (; i + 4 * lanes <= n; i += 4 * lanes) {
    s0 = terms.added_to(s0, i);
    s1 = terms.added_to(s1, i + lanes);
    s2 = terms.added_to(s2, i + 2 * lanes);
    s3 = terms.added_to(s3, i + 3 * lanes);
  }
  double sum = hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(s0, s1), hn::Add(s2, s3))));
  for (; i < n; ++i) sum += terms[i];
  return sum;
}

// Splits each term by the anchor; the rests go to `rest`, the sum of the high parts is returned.
template <class Source>
double split_by(double anchor, const Source& terms, std::size_t n, double* rest) {
  const Doubles d;
  const std::size_t lanes = hn::Lanes(d);
  const Vector start = hn::Set(d, anchor);
  Vector s0 = start, s1 = start, s2 = start, s3 = start;
  const auto step = [&](Vector& s, std::size_t at) HWY_ATTR {
    const Vector t = terms.added_to(s, at);
    hn::StoreU(terms.minus(hn::Sub(t, s), at), d, rest + at);
    s = t;
  };
  std::size_t i = 0;
  for (; i + 4 * lanes <= n; i += 4 * lanes) {
    step(s0, i);
    step(s1, i + lanes);
    step(s2, i + 2 * lanes);
    step(s3, i + 3 * lanes);
  }
  const Vector high = hn::Add(hn::Add(hn::Sub(s0, start), hn::Sub(s1, start)),
                              hn::Add(hn::Sub(s2, start), hn::Sub(s3, start)));
  double sum = anchor;
  for (; i < n; ++i) {
    const double t = sum + terms[i], h = t - sum;
    rest[i] = terms[i] - h;
    sum = t;
  }
  return hn::GetLane(hn::SumOfLanes(d, high)) + (sum - anchor);
}

// The largest |x| as bits, which order as the magnitudes do, NaN above infinity.
template <class T, class Bits>
Bits largest_bits(const T* HWY_RESTRICT x, std::size_t n) {
  const hn::ScalableTag<Bits> d;
  const std::size_t lanes = hn::Lanes(d);
  const auto* bits = reinterpret_cast<const Bits*>(x);
  constexpr Bits magnitude = static_cast<Bits>(~Bits{0}) >> 1;
  const auto mask = hn::Set(d, magnitude);
  auto m0 = hn::Zero(d), m1 = m0;
  std::size_t i = 0;
  for (; i + 2 * lanes <= n; i += 2 * lanes) {
    m0 = hn::Max(m0, hn::And(mask, hn::LoadU(d, bits + i)));
    m1 = hn::Max(m1, hn::And(mask, hn::LoadU(d, bits + i + lanes)));
  }
  Bits largest = hn::GetLane(hn::MaxOfLanes(d, hn::Max(m0, m1)));
  for (; i < n; ++i) largest = std::max(largest, static_cast<Bits>(std::bit_cast<Bits>(x[i]) & magnitude));
  return largest;
}

}  // namespace

HWY_NOINLINE double sum_floats(const float* x, std::size_t n) {
  return sum_of(Terms<float>{x}, n);
}
HWY_NOINLINE double sum_doubles(const double* x, std::size_t n) {
  return sum_of(Terms<double>{x}, n);
}
HWY_NOINLINE double sum_products(const float* a, const float* b, std::size_t n) {
  return sum_of(Products{a, b}, n);
}
HWY_NOINLINE double split_floats(double anchor, const float* x, std::size_t n, double* rest) {
  return split_by(anchor, Terms<float>{x}, n, rest);
}
HWY_NOINLINE double split_doubles(double anchor, const double* x, std::size_t n, double* rest) {
  return split_by(anchor, Terms<double>{x}, n, rest);
}
HWY_NOINLINE double split_products(double anchor, const float* a, const float* b, std::size_t n,
                                   double* rest) {
  return split_by(anchor, Products{a, b}, n, rest);
}
HWY_NOINLINE std::uint32_t largest_float(const float* x, std::size_t n) {
  return largest_bits<float, std::uint32_t>(x, n);
}
HWY_NOINLINE std::uint64_t largest_double(const double* x, std::size_t n) {
  return largest_bits<double, std::uint64_t>(x, n);
}
// a b = product + error where nothing leaves the range (Dekker's TwoProduct by FMA).
HWY_NOINLINE void two_products(const double* a, const double* b, std::size_t n, double* product,
                               double* error) {
  std::size_t i = 0;
#if HWY_NATIVE_FMA
  const Doubles d;
  for (; i + hn::Lanes(d) <= n; i += hn::Lanes(d)) {
    const Vector x = load(a + i), y = load(b + i), p = hn::Mul(x, y);
    hn::StoreU(p, d, product + i);
    hn::StoreU(hn::MulSub(x, y, p), d, error + i);
  }
#endif
  for (; i < n; ++i) {
    product[i] = a[i] * b[i];
    error[i] = std::fma(a[i], b[i], -product[i]);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace assay
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace assay {
namespace {

HWY_EXPORT(sum_floats);
HWY_EXPORT(sum_doubles);
HWY_EXPORT(sum_products);
HWY_EXPORT(split_floats);
HWY_EXPORT(split_doubles);
HWY_EXPORT(split_products);
HWY_EXPORT(largest_float);
HWY_EXPORT(largest_double);
HWY_EXPORT(two_products);

constexpr std::size_t block = 2048;  // its rests, 16 KiB, stay in the first cache beside the elements
constexpr int block_bits = 11;
constexpr std::size_t few = 32;  // below it one by one is faster

// The compilers know no FENV_ACCESS: what was computed must be in memory before the flags are read.
void settle(double& computed) {
  asm volatile("" : "+m"(computed) : : "memory");
}

// Whether computing `sum` rounded nowhere; afterwards the flag is clear.
template <class Sum>
bool exactly(Sum compute, double& sum) {
  sum = compute();
  settle(sum);
  if (std::fetestexcept(FE_INEXACT) == 0) return true;
  std::feclearexcept(FE_INEXACT);
  return false;
}

// Emulators may not raise the flag: Valgrind does not.
bool flags_work() {
  static const bool work = [] {
    const DefaultFloatEnvironment environment;
    const double values[] = {1, 0x1p-60};
    double sum;
    return !exactly([&] { return HWY_DYNAMIC_DISPATCH(sum_doubles)(values, 2); }, sum);
  }();
  return work;
}

// The exponent of a power of two above the magnitude with these bits.
int exponent_above(std::uint32_t bits) {
  return std::max(static_cast<int>(bits >> 23), 1) - 126;
}
int exponent_above(std::uint64_t bits) {
  return std::max(static_cast<int>(bits >> 52), 1) - 1022;
}
constexpr std::uint32_t infinite_float = 0x7f800000;

// With |x| < 2^e, n <= 2^block_bits terms change S by at most 2^(e + block_bits) (1 + 2^-40): from 1.5 2^E
// it stays in [2^E, 2^(E+1)] for E = e + block_bits + 2. Then every h is a multiple of 2^(E-52), their sums
// of fewer than 53 bits are exact in any order, and |r| <= 2^(E-53).
constexpr int headroom = block_bits + 2;
double anchor_above(int e) {
  return std::ldexp(1.5, e + headroom);
}
constexpr int rest_above(int e) {
  return e + headroom - 52;
}
constexpr int highest_exponent = 1022 - headroom;  // of terms whose anchor, and sums with it, stay finite

// Adds the sum of values below 2^e in size, splitting them in place as often as it takes: once what is left
// is below 2^-1021, no sum of a block rounds.
void add_rests(ExactSum& sum, double* rest, std::size_t n, int e) {
  double part;
  while (!exactly([&] { return HWY_DYNAMIC_DISPATCH(sum_doubles)(rest, n); }, part)) {
    sum.add(HWY_DYNAMIC_DISPATCH(split_doubles)(anchor_above(e), rest, n, rest));
    std::feclearexcept(FE_INEXACT);
    e = rest_above(e);
  }
  sum.add(part);
}

// Blocks that resemble each other round alike: after one that did, the next few are split straight away.
class Attempts {
 public:
  bool worthwhile() { return skip_ == 0 || --skip_ == 0; }
  void failed() { skip_ = 16; }

 private:
  int skip_ = 0;
};

}  // namespace

void ExactSum::add(std::span<const float> x) {
  if (x.size() < few || !flags_work()) {
    for (const float value : x) add(static_cast<double>(value));
    return;
  }
  const DefaultFloatEnvironment environment;
  Attempts attempts;
  alignas(64) double rest[block];
  for (std::size_t i = 0; i < x.size(); i += block) {
    const auto part = x.subspan(i, std::min(block, x.size() - i));
    const float* const p = part.data();
    const std::size_t n = part.size();
    if (attempts.worthwhile()) {
      double sum;
      if (exactly([&] { return HWY_DYNAMIC_DISPATCH(sum_floats)(p, n); }, sum) && std::isfinite(sum)) {
        add(sum);
        continue;
      }
      attempts.failed();
    }
    const std::uint32_t largest = HWY_DYNAMIC_DISPATCH(largest_float)(p, n);
    if (largest == 0 || largest >= infinite_float) {
      for (const float value : part) add(static_cast<double>(value));
      continue;
    }
    const int e = exponent_above(largest);
    add(HWY_DYNAMIC_DISPATCH(split_floats)(anchor_above(e), p, n, rest));
    std::feclearexcept(FE_INEXACT);
    add_rests(*this, rest, n, rest_above(e));
  }
}

void ExactSum::add(std::span<const double> x) {
  if (x.size() < few || !flags_work()) {
    for (const double value : x) add(value);
    return;
  }
  const DefaultFloatEnvironment environment;
  alignas(64) double rest[block];
  for (std::size_t i = 0; i < x.size(); i += block) {
    const auto part = x.subspan(i, std::min(block, x.size() - i));
    const std::uint64_t largest = HWY_DYNAMIC_DISPATCH(largest_double)(part.data(), part.size());
    const int e = exponent_above(largest);
    if (largest == 0 || e > highest_exponent) {
      for (const double value : part) add(value);
      continue;
    }
    add(HWY_DYNAMIC_DISPATCH(split_doubles)(anchor_above(e), part.data(), part.size(), rest));
    std::feclearexcept(FE_INEXACT);
    add_rests(*this, rest, part.size(), rest_above(e));
  }
}

void ExactSum::add_products(std::span<const float> a, std::span<const float> b) {
  if (a.size() != b.size())
    throw Error("exact dot product: {} and {} elements; expected the same number", a.size(), b.size());
  const auto one_by_one = [&](std::size_t begin, std::size_t n) {
    for (std::size_t i = begin; i < begin + n; ++i)
      add(static_cast<double>(a[i]) * static_cast<double>(b[i]));
  };
  if (a.size() < few || !flags_work()) return one_by_one(0, a.size());
  const DefaultFloatEnvironment environment;
  Attempts attempts;
  alignas(64) double rest[block];
  for (std::size_t i = 0; i < a.size(); i += block) {
    const std::size_t n = std::min(block, a.size() - i);
    const float *const x = a.data() + i, *const y = b.data() + i;
    if (attempts.worthwhile()) {
      double sum;
      if (exactly([&] { return HWY_DYNAMIC_DISPATCH(sum_products)(x, y, n); }, sum) && std::isfinite(sum)) {
        add(sum);
        continue;
      }
      attempts.failed();
    }
    const std::uint32_t largest_x = HWY_DYNAMIC_DISPATCH(largest_float)(x, n),
                        largest_y = HWY_DYNAMIC_DISPATCH(largest_float)(y, n);
    if (largest_x == 0 || largest_y == 0 || std::max(largest_x, largest_y) >= infinite_float) {
      one_by_one(i, n);
      continue;
    }
    const int e = exponent_above(largest_x) + exponent_above(largest_y);
    add(HWY_DYNAMIC_DISPATCH(split_products)(anchor_above(e), x, y, n, rest));
    std::feclearexcept(FE_INEXACT);
    add_rests(*this, rest, n, rest_above(e));
  }
}

void ExactSum::add_products(std::span<const double> a, std::span<const double> b) {
  if (a.size() != b.size())
    throw Error("exact dot product: {} and {} elements; expected the same number", a.size(), b.size());
  const auto one_by_one = [&](std::size_t begin, std::size_t n) {
    for (std::size_t i = begin; i < begin + n; ++i) add_product(a[i], b[i]);
  };
  if (a.size() < few || !flags_work()) return one_by_one(0, a.size());
  const DefaultFloatEnvironment environment;
  alignas(64) double product[block];
  alignas(64) double error[block];
  for (std::size_t i = 0; i < a.size(); i += block) {
    const std::size_t n = std::min(block, a.size() - i);
    std::feclearexcept(FE_ALL_EXCEPT);
    HWY_DYNAMIC_DISPATCH(two_products)(a.data() + i, b.data() + i, n, product, error);
    settle(product[0]);
    // The pair is the product unless one of them left the range, and that raises a flag.
    const bool in_range = std::fetestexcept(FE_OVERFLOW | FE_UNDERFLOW | FE_INVALID) == 0;
    std::feclearexcept(FE_INEXACT);
    const std::uint64_t largest = HWY_DYNAMIC_DISPATCH(largest_double)(product, n),
                        largest_error = HWY_DYNAMIC_DISPATCH(largest_double)(error, n);
    if (!in_range || largest == 0 || exponent_above(largest) > highest_exponent) {
      one_by_one(i, n);
      continue;
    }
    add_rests(*this, product, n, exponent_above(largest));
    if (largest_error != 0) add_rests(*this, error, n, exponent_above(largest_error));
  }
}

}  // namespace assay
#endif  // HWY_ONCE
