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
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

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

// On processors with separate units for addition and for FMA the latter are idle: s + x as s + 1 x.
Vector plus(Vector s, Vector x) {
#if HWY_NATIVE_FMA
  return hn::MulAdd(x, hn::Set(Doubles(), 1.0), s);
#else
  return hn::Add(s, x);
#endif
}

// What is split: x, or a b, which is exact in float64 for float32 factors, so that fusing changes nothing.
template <class T>
struct Terms {
  const T* x;
  Vector added_to(Vector s, std::size_t i) const { return plus(s, load(x + i)); }
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

constexpr std::size_t block = 4096;  // is added at once
constexpr int piece_bits = 10;       // is split at once: 8 KiB of rests stay in the first cache
constexpr std::size_t piece = std::size_t{1} << piece_bits;
constexpr std::size_t few = 32;  // below it one by one is faster

// The compilers know no FENV_ACCESS: what was computed must be in memory before the flags are read.
void settle(double& computed) {
  asm volatile("" : "+m"(computed) : : "memory");
}

#if defined(__x86_64__)
// As <cfenv>, which would also settle the x87 unit: ten times the time.
bool rounded() {
  return (_mm_getcsr() & _MM_EXCEPT_INEXACT) != 0;
}
void forget_rounding() {
  _mm_setcsr(_mm_getcsr() & ~static_cast<unsigned>(_MM_EXCEPT_INEXACT));
}
#else
bool rounded() {
  return std::fetestexcept(FE_INEXACT) != 0;
}
void forget_rounding() {
  std::feclearexcept(FE_INEXACT);
}
#endif

// Whether computing `sum` rounded nowhere; afterwards the flag is clear.
template <class Sum>
bool exactly(Sum compute, double& sum) {
  sum = compute();
  settle(sum);
  if (!rounded()) return true;
  forget_rounding();
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

// With |x| < 2^e, n <= 2^piece_bits terms change S by at most 2^(e + piece_bits) (1 + 2^-40): from 1.5 2^E
// it stays in [2^E, 2^(E+1)] for E = e + piece_bits + 2. Then every h is a multiple of 2^(E-52), their sums
// of fewer than 53 bits are exact in any order, and |r| <= 2^(E-53).
constexpr int headroom = piece_bits + 2;
double anchor_above(int e) {
  return std::ldexp(1.5, e + headroom);
}
constexpr int rest_above(int e) {
  return e + headroom - 52;
}
constexpr int highest_exponent = 1022 - headroom;  // of terms whose anchor, and sums with it, stay finite

// Adds the sum of values below 2^e in size, splitting them in place as often as it takes: once what is left
// is small enough, no sum of multiples of 2^-1074 rounds.
void add_rests(ExactSum& sum, double* rest, std::size_t n, int e) {
  double part;
  while (!exactly([&] { return HWY_DYNAMIC_DISPATCH(sum_doubles)(rest, n); }, part)) {
    sum.add(HWY_DYNAMIC_DISPATCH(split_doubles)(anchor_above(e), rest, n, rest));
    forget_rounding();
    e = rest_above(e);
  }
  sum.add(part);
}

// Adds the sum of terms below 2^e in size; split(anchor, rest) splits them.
template <class Split>
void add_split(ExactSum& sum, Split split, std::size_t n, int e) {
  alignas(64) double rest[piece];
  sum.add(split(anchor_above(e), rest));
  forget_rounding();
  add_rests(sum, rest, n, rest_above(e));
}

// add(i, n) for the terms [i, i + n) in turn, cut at `size` terms.
template <class Add>
void in_parts(std::size_t begin, std::size_t end, std::size_t size, Add add) {
  for (std::size_t i = begin; i < end; i += size) add(i, std::min(size, end - i));
}

// sum_of(i, n) is a block's plain sum; split_up(i, n) adds a piece by splitting. Blocks that resemble each
// other round alike: after one that rounded, the next few are split straight away.
template <class Sum, class Split>
void add_blocks(ExactSum& sum, std::size_t size, Sum sum_of, Split split_up) {
  int split_next = 0;
  in_parts(0, size, block, [&](std::size_t i, std::size_t n) {
    if (split_next > 0) {
      --split_next;
    } else {
      double part;
      // Infinities and NaN round nowhere.
      if (exactly([&] { return sum_of(i, n); }, part) && std::isfinite(part)) return sum.add(part);
      split_next = 15;
    }
    in_parts(i, i + n, piece, split_up);
  });
}

void check_lengths(std::size_t a, std::size_t b) {
  if (a != b) throw Error("exact dot product: the vectors have {} and {} elements; expected as many", a, b);
}

}  // namespace

void ExactSum::add(std::span<const float> x) {
  const auto one_by_one = [&](std::size_t i, std::size_t n) {
    for (const float value : x.subspan(i, n)) add(static_cast<double>(value));
  };
  if (x.size() < few || !flags_work()) return one_by_one(0, x.size());
  const DefaultFloatEnvironment environment;
  const float* const p = x.data();
  add_blocks(
      *this, x.size(),
      [&](std::size_t i, std::size_t n) { return HWY_DYNAMIC_DISPATCH(sum_floats)(p + i, n); },
      [&](std::size_t i, std::size_t n) {
        const std::uint32_t largest = HWY_DYNAMIC_DISPATCH(largest_float)(p + i, n);
        if (largest == 0 || largest >= infinite_float) return one_by_one(i, n);
        const auto split = [&](double anchor, double* rest) {
          return HWY_DYNAMIC_DISPATCH(split_floats)(anchor, p + i, n, rest);
        };
        add_split(*this, split, n, exponent_above(largest));
      });
}

void ExactSum::add(std::span<const double> x) {
  const auto one_by_one = [&](std::size_t i, std::size_t n) {
    for (const double value : x.subspan(i, n)) add(value);
  };
  if (x.size() < few || !flags_work()) return one_by_one(0, x.size());
  const DefaultFloatEnvironment environment;
  const double* const p = x.data();
  add_blocks(
      *this, x.size(),
      [&](std::size_t i, std::size_t n) { return HWY_DYNAMIC_DISPATCH(sum_doubles)(p + i, n); },
      [&](std::size_t i, std::size_t n) {
        const std::uint64_t largest = HWY_DYNAMIC_DISPATCH(largest_double)(p + i, n);
        const int e = exponent_above(largest);
        if (largest == 0 || e > highest_exponent) return one_by_one(i, n);
        const auto split = [&](double anchor, double* rest) {
          return HWY_DYNAMIC_DISPATCH(split_doubles)(anchor, p + i, n, rest);
        };
        add_split(*this, split, n, e);
      });
}

void ExactSum::add_products(std::span<const float> a, std::span<const float> b) {
  check_lengths(a.size(), b.size());
  const auto one_by_one = [&](std::size_t begin, std::size_t n) {
    for (std::size_t i = begin; i < begin + n; ++i)
      add(static_cast<double>(a[i]) * static_cast<double>(b[i]));
  };
  if (a.size() < few || !flags_work()) return one_by_one(0, a.size());
  const DefaultFloatEnvironment environment;
  const float *const p = a.data(), *const q = b.data();
  add_blocks(
      *this, a.size(),
      [&](std::size_t i, std::size_t n) { return HWY_DYNAMIC_DISPATCH(sum_products)(p + i, q + i, n); },
      [&](std::size_t i, std::size_t n) {
        const std::uint32_t largest_a = HWY_DYNAMIC_DISPATCH(largest_float)(p + i, n),
                            largest_b = HWY_DYNAMIC_DISPATCH(largest_float)(q + i, n);
        if (largest_a == 0 || largest_b == 0 || std::max(largest_a, largest_b) >= infinite_float)
          return one_by_one(i, n);
        const auto split = [&](double anchor, double* rest) {
          return HWY_DYNAMIC_DISPATCH(split_products)(anchor, p + i, q + i, n, rest);
        };
        add_split(*this, split, n, exponent_above(largest_a) + exponent_above(largest_b));
      });
}

void ExactSum::add_products(std::span<const double> a, std::span<const double> b) {
  check_lengths(a.size(), b.size());
  const auto one_by_one = [&](std::size_t begin, std::size_t n) {
    for (std::size_t i = begin; i < begin + n; ++i) add_product(a[i], b[i]);
  };
  if (a.size() < few || !flags_work()) return one_by_one(0, a.size());
  const DefaultFloatEnvironment environment;
  alignas(64) double product[piece];
  alignas(64) double error[piece];
  in_parts(0, a.size(), piece, [&](std::size_t i, std::size_t n) {
    std::feclearexcept(FE_ALL_EXCEPT);
    HWY_DYNAMIC_DISPATCH(two_products)(a.data() + i, b.data() + i, n, product, error);
    settle(product[0]);
    // The pair is the product unless one of the two left the range, and that raises a flag.
    const bool in_range = std::fetestexcept(FE_OVERFLOW | FE_UNDERFLOW | FE_INVALID) == 0;
    forget_rounding();
    const std::uint64_t largest = HWY_DYNAMIC_DISPATCH(largest_double)(product, n),
                        largest_error = HWY_DYNAMIC_DISPATCH(largest_double)(error, n);
    if (!in_range || largest == 0 || exponent_above(largest) > highest_exponent) return one_by_one(i, n);
    add_rests(*this, product, n, exponent_above(largest));
    if (largest_error != 0) add_rests(*this, error, n, exponent_above(largest_error));
  });
}

}  // namespace assay
#endif  // HWY_ONCE
