// Elements as vectors of 16 float32 lanes at most, and sums of such lanes. Included once for each target.
#if defined(ASSAY_COMPARE_FUSED_VECTORS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef ASSAY_COMPARE_FUSED_VECTORS_INL_H
#undef ASSAY_COMPARE_FUSED_VECTORS_INL_H
#else
#define ASSAY_COMPARE_FUSED_VECTORS_INL_H
#endif

#include <hwy/highway.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>

HWY_BEFORE_NAMESPACE();
namespace assay {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

constexpr std::size_t lanes = 16;
using F = hn::CappedTag<float, lanes>;
using I = hn::RebindToSigned<F>;
using U = hn::RebindToUnsigned<F>;
using U16 = hn::Repartition<std::uint16_t, F>;
using Half = hn::Half<F>;
using D = hn::Rebind<double, Half>;
using Floats = hn::Vec<F>;
using Ints = hn::Vec<U>;
using Doubles = hn::Vec<D>;
using Mask = hn::Mask<F>;

constexpr float float_infinity = std::numeric_limits<float>::infinity();

// What comes a `fused_fold` later, into the second cache.
HWY_INLINE void prefetch_far(const std::byte* p) {
  __builtin_prefetch(p, 0, 2);
}
// What comes next, into the first; measured on Zen 4, 256 to 1024 bytes ahead are alike. Both together give
// float32 1.3 times the speed of either alone where elements are not aligned to the lines of the cache.
HWY_INLINE void prefetch_near(const std::byte* p) {
  __builtin_prefetch(p + 512, 0, 3);
}

// An element type: its values, and its bits as the high ones of 32 (`code`). Of types of 16 bits, `two` gives
// the values of 32 elements at p: those that 16 lanes take, beginning with `lane`, one after the other. It is
// free to choose which, so that all lanes together have all elements.
struct Float32 {
  using Codes = U;
  static constexpr std::size_t size = 4;
  static constexpr float normal = 0x1p-126f;
  static constexpr std::uint32_t infinity_code = 0x7f800000;
  static HWY_INLINE Floats load(const std::byte* p, std::size_t i, Ints& code) {
    const Floats x = hn::LoadU(F(), reinterpret_cast<const float*>(p) + i);
    code = hn::BitCast(U(), x);
    return x;
  }
  static float value(std::uint32_t code) { return std::bit_cast<float>(code); }
};

HWY_INLINE Ints load_high(const std::byte* p, std::size_t i) {
  const hn::Rebind<std::uint16_t, F> d;
  return hn::ShiftLeft<16>(hn::PromoteTo(U(), hn::LoadU(d, reinterpret_cast<const std::uint16_t*>(p) + i)));
}

struct BFloat16 {
  using Codes = U16;
  static constexpr std::size_t size = 2;
  static constexpr float normal = 0x1p-126f;
  static constexpr std::uint32_t infinity_code = 0x7f80;
  static HWY_INLINE Floats load(const std::byte* p, std::size_t i, Ints& code) {
    code = load_high(p, i);
    return hn::BitCast(F(), code);
  }
  static HWY_INLINE void two(const std::byte* p, std::size_t lane, Floats& first, Floats& second) {
    const Ints pairs = hn::LoadU(U(), reinterpret_cast<const std::uint32_t*>(p) + lane);
    first = hn::BitCast(F(), hn::ShiftLeft<16>(pairs));
    second = hn::BitCast(F(), hn::And(pairs, hn::Set(U(), 0xffff0000u)));
  }
  static float value(std::uint32_t code) { return std::bit_cast<float>(code << 16); }
};

struct Float16 {
  using Codes = U16;
  static constexpr std::size_t size = 2;
  static constexpr float normal = 0x1p-14f;
  static constexpr std::uint32_t infinity_code = 0x7c00;
  static HWY_INLINE Floats load(const std::byte* p, std::size_t i, Ints& code) {
    code = load_high(p, i);
    return widen(p, i);
  }
  static HWY_INLINE void two(const std::byte* p, std::size_t lane, Floats& first, Floats& second) {
    first = widen(p, lane);
    second = widen(p, lanes + lane);
  }
  static HWY_INLINE Floats widen(const std::byte* p, std::size_t i) {
#if HWY_TARGET <= HWY_AVX2
    const hn::Rebind<std::uint16_t, F> d;
    const auto half = hn::LoadU(d, reinterpret_cast<const std::uint16_t*>(p) + i);
    Floats x = hn::PromoteTo(F(), hn::BitCast(hn::Rebind<hwy::float16_t, F>(), half));
#if HWY_COMPILER_CLANG
    asm("" : "+v"(x.raw));  // where clang 14 sees the widening, it compares the halves, one by one
#endif
    return x;
#else
    // The fraction and exponent where float32 has them are the value but for the biases, 127 and 15.
    const Ints code = load_high(p, i);
    const Ints magnitude = hn::ShiftRight<3>(hn::And(code, hn::Set(U(), 0x7fffffff)));
    const Floats scaled = hn::Mul(hn::BitCast(F(), magnitude), hn::Set(F(), 0x1p112f));
    const auto special = hn::RebindMask(F(), hn::Gt(hn::BitCast(I(), magnitude), hn::Set(I(), 0x0f7fffff)));
    const Floats infinite = hn::BitCast(F(), hn::Or(magnitude, hn::Set(U(), 0x7f800000)));
    const Floats sign = hn::BitCast(F(), hn::And(code, hn::Set(U(), 0x80000000u)));
    return hn::Or(hn::IfThenElse(special, infinite, scaled), sign);
#endif
  }
  static float value(std::uint32_t code) {
    const auto magnitude = static_cast<int>(code & 0x7fff), exponent = magnitude >> 10;
    const float size = exponent == 0
                           ? std::ldexp(static_cast<float>(magnitude), -24)
                           : std::ldexp(static_cast<float>((magnitude & 0x3ff) | 0x400), exponent - 25);
    return (code & 0x8000) != 0 ? -size : size;
  }
};

HWY_INLINE Doubles lower(Floats x) {
  return hn::PromoteTo(D(), hn::LowerHalf(Half(), x));
}
HWY_INLINE Doubles upper(Floats x) {
  return hn::PromoteTo(D(), hn::UpperHalf(Half(), x));
}

#if HWY_NATIVE_FMA
HWY_INLINE Floats multiply_add(Floats a, Floats b, Floats c) {
  return hn::MulAdd(a, b, c);
}
#else
// a b + c rounded to odd, from which rounding to float32 is that of the exact sum (Boldo and Melquiond 2008,
// "Emulation of FMA and correctly rounded sums: proved algorithms using rounding to odd"): products of
// float32 are exact in float64.
HWY_INLINE hn::Vec<Half> multiply_add(Doubles a, Doubles b, Doubles c) {
  using Bits = hn::RebindToSigned<D>;
  const Doubles product = hn::Mul(a, b), sum = hn::Add(product, c), c_part = hn::Sub(sum, product);
  const Doubles lost = hn::Add(hn::Sub(product, hn::Sub(sum, c_part)), hn::Sub(c, c_part));
  const auto bits = hn::BitCast(Bits(), sum), one = hn::Set(Bits(), 1);
  const auto even = hn::Eq(hn::And(bits, one), hn::Zero(Bits()));
  const auto inexact = hn::RebindMask(Bits(), hn::Ne(lost, hn::Zero(D())));
  const auto away = hn::Sub(
      one, hn::And(hn::Set(Bits(), 2), hn::BroadcastSignBit(hn::Xor(bits, hn::BitCast(Bits(), lost)))));
  const auto odd = hn::Add(bits, hn::IfThenElseZero(hn::And(even, inexact), away));
  return hn::DemoteTo(Half(), hn::BitCast(D(), odd));
}
HWY_INLINE Floats multiply_add(Floats a, Floats b, Floats c) {
  return hn::Combine(F(), multiply_add(upper(a), upper(b), upper(c)),
                     multiply_add(lower(a), lower(b), lower(c)));
}
#endif

// How often masks were true.
class Counter {
 public:
#if HWY_TARGET <= HWY_AVX3
  // By hand: g++ 12 takes the bits of a mask that it spilled with what lies beside them.
  HWY_INLINE void add(Mask mask) {
    unsigned bits;
    asm("kmovw %1, %0" : "=r"(bits) : "k"(mask.raw));
    count_ += std::popcount(bits);
  }
  HWY_INLINE std::int64_t total() const {
    return count_;
  }

 private:
  int count_ = 0;
#else
  HWY_INLINE Counter() : count_(hn::Zero(U())) {}  // an implicit one would be for another instruction set
  HWY_INLINE void add(Mask mask) {
    count_ = hn::Sub(count_, hn::BitCast(U(), hn::VecFromMask(F(), mask)));
  }
  HWY_INLINE std::int64_t total() const {
    return static_cast<std::int64_t>(hn::GetLane(hn::SumOfLanes(U(), count_)));
  }

 private:
  Ints count_;
#endif
};

template <std::size_t count>
double tree_sum(std::array<double, count> sum) {
  for (std::size_t half = count / 2; half > 0; half /= 2) {
    for (std::size_t i = 0; i < half; ++i) sum[i] += sum[i + half];
  }
  return sum[0];
}

// Float64 sums of float32 sums of 16 lanes: those of a few steps, then of lanes l and l + 8.
template <std::size_t count>
class LaneSums {
 public:
  // The lanes from `lane` on of a step's sum.
  HWY_INLINE void put(std::size_t sum, std::size_t lane, Floats x) {
    float* const at = steps_[sum] + lane;
    hn::Store(hn::Add(hn::Load(F(), at), x), F(), at);
  }
  HWY_INLINE void fold() {
    for (std::size_t k = 0; k < count; ++k) {
      for (std::size_t at = 0; at < lanes / 2; at += hn::Lanes(D())) {
        const auto pair =
            hn::Add(hn::Load(Half(), steps_[k] + at), hn::Load(Half(), steps_[k] + at + lanes / 2));
        hn::Store(hn::Add(hn::Load(D(), sums_[k] + at), hn::PromoteTo(D(), pair)), D(), sums_[k] + at);
      }
      for (std::size_t at = 0; at < lanes; at += hn::Lanes(F()))
        hn::Store(hn::Zero(F()), F(), steps_[k] + at);
    }
  }
  double total(std::size_t k) const { return tree_sum(std::to_array(sums_[k])); }

 private:
  alignas(64) float steps_[count][lanes] = {};
  alignas(64) double sums_[count][lanes / 2] = {};
};

HWY_INLINE bool any(Mask mask) {
  return !hn::AllFalse(F(), mask);
}
HWY_INLINE float least(Floats x) {
  return hn::GetLane(hn::MinOfLanes(F(), x));
}
HWY_INLINE float largest(Floats x) {
  return hn::GetLane(hn::MaxOfLanes(F(), x));
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace assay
HWY_AFTER_NAMESPACE();
#endif
