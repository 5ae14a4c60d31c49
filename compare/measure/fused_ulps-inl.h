// Distances in units in the last place, and their exact histogram. Included once for each target.
#if defined(ASSAY_COMPARE_FUSED_ULPS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef ASSAY_COMPARE_FUSED_ULPS_INL_H
#undef ASSAY_COMPARE_FUSED_ULPS_INL_H
#else
#define ASSAY_COMPARE_FUSED_ULPS_INL_H
#endif

#include <array>

#include "assay/compare/measure/fused_vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace assay {
namespace HWY_NAMESPACE {
namespace {

// The bits of a float32 rounded to bfloat16, nearest even, as its high ones; finite values only.
HWY_INLINE Ints to_bfloat16(Ints code) {
  const Ints up = hn::Add(code, hn::Set(U(), 0x7fff));
  const auto odd = hn::TestBit(code, hn::Set(U(), 0x10000));
  return hn::And(hn::IfThenElse(odd, hn::Add(up, hn::Set(U(), 1)), up), hn::Set(U(), 0xffff0000u));
}

// How far apart two codes of sign and magnitude stand. Both zeros are 0.
template <class Tag, class Codes = hn::Vec<Tag>>
HWY_INLINE Codes distance(Tag d, Codes a, Codes r, Codes a_magnitude, Codes r_magnitude) {
  const hn::RebindToSigned<Tag> i;
  const auto x = hn::BitCast(i, a_magnitude), y = hn::BitCast(i, r_magnitude);
  const auto signs = hn::BitCast(i, hn::Xor(a, r));
  return hn::BitCast(d, hn::IfNegativeThenElse(signs, hn::Add(x, y), hn::Abs(hn::Sub(x, y))));
}

#if HWY_TARGET <= HWY_AVX3
HWY_INLINE Ints highest_bit(U, Ints u) {
  // AVX512CD, which every processor with AVX512BW has; Highway's target does not name it.
  __m512i zeros;
  asm("vplzcntd %1, %0" : "=v"(zeros) : "v"(u.raw));
  return Ints{_mm512_srlv_epi32(_mm512_set1_epi32(static_cast<int>(0x80000000u)), zeros)};
}
// Of pairs whose high one is 0, `u` as a whole has the highest bit of the low one: found twice.
HWY_INLINE Ints highest_bit(U16, hn::Vec<U16> u) {
  const Ints pairs = hn::BitCast(U(), u), low = hn::And(pairs, hn::Set(U(), 0xffff));
  return hn::Or(highest_bit(U(), pairs), highest_bit(U(), low));
}
#else
// Only the highest bit that is set of each number.
template <class Tag, class Codes = hn::Vec<Tag>>
HWY_INLINE Ints highest_bit(Tag, Codes u) {
  u = hn::Or(u, hn::ShiftRight<1>(u));
  u = hn::Or(u, hn::ShiftRight<2>(u));
  u = hn::Or(u, hn::ShiftRight<4>(u));
  u = hn::Or(u, hn::ShiftRight<8>(u));
  if constexpr (sizeof(hn::TFromD<Tag>) == 4) u = hn::Or(u, hn::ShiftRight<16>(u));
  return hn::BitCast(U(), hn::Xor(u, hn::ShiftRight<1>(u)));
}
#endif

// o | (a ^ b).
template <class V>
HWY_INLINE V or_xor(V o, V a, V b) {
#if HWY_TARGET <= HWY_AVX3
  return V{_mm512_ternarylogic_epi32(o.raw, a.raw, b.raw, 0xf6)};
#else
  return hn::Or(o, hn::Xor(a, b));
#endif
}

// Adds a and b to the bit counters of weight 1 in `ones`; the carries, of weight 2, are returned.
HWY_INLINE Ints add_bits(Ints& ones, Ints a, Ints b) {
#if HWY_TARGET <= HWY_AVX3
  const Ints carry{_mm512_ternarylogic_epi32(ones.raw, a.raw, b.raw, 0xe8)};
  ones = Ints{_mm512_ternarylogic_epi32(ones.raw, a.raw, b.raw, 0x96)};
#else
  const Ints either = hn::Xor(a, b);
  const Ints carry = hn::Or(hn::And(a, b), hn::And(either, ones));
  ones = hn::Xor(ones, either);
#endif
  return carry;
}

// Positional population count (Klarqvist, Mula and Lemire 2019, arXiv 1911.02696): bit k of plane p in a lane
// says whether 2^p is in the number of vectors there that had bit k set.
class BitCounters {
 public:
  // Of weights 1, 2 and 4, in registers while eight vectors are added to them.
  struct Low {
    Ints ones, twos, fours;
  };
  HWY_INLINE Low load(std::size_t lane) const { return {at(0, lane), at(1, lane), at(2, lane)}; }
  HWY_INLINE void store(const Low& low, std::size_t lane) {
    put(low.ones, 0, lane);
    put(low.twos, 1, lane);
    put(low.fours, 2, lane);
  }
  // The carries of weight 8; every other time they go on together with those before.
  HWY_INLINE void carry(Ints carry, std::size_t lane, bool second) {
    if (second) {
      Ints eights = at(3, lane);
      ripple(add_bits(eights, hn::Load(U(), waiting_ + lane), carry), lane, 4);
      put(eights, 3, lane);
      carry = hn::Zero(U());
    }
    hn::Store(carry, U(), waiting_ + lane);
  }
  // The carries that still wait.
  HWY_INLINE void finish() {
    for (std::size_t lane = 0; lane < lanes; lane += hn::Lanes(U()))
      ripple(hn::Load(U(), waiting_ + lane), lane, 3);
  }
  // Adds the number of those with bit k to out[k].
  void count(std::array<std::int64_t, 32>& out) const {
    Ints seen = hn::Zero(U());
    for (std::size_t p = 0; p < planes; ++p) {
      for (std::size_t lane = 0; lane < lanes; lane += hn::Lanes(U())) seen = hn::Or(seen, at(p, lane));
    }
    alignas(64) std::uint32_t each[lanes] = {};
    hn::Store(seen, U(), each);
    std::uint32_t bits = 0;
    for (const std::uint32_t e : each) bits |= e;
    for (; bits != 0; bits &= bits - 1) {
      const int bit = std::countr_zero(bits);
      const Ints wanted = hn::Set(U(), std::uint32_t{1} << bit);
      for (std::size_t p = 0; p < planes; ++p) {
        std::size_t n = 0;
        for (std::size_t lane = 0; lane < lanes; lane += hn::Lanes(U()))
          n += hn::CountTrue(U(), hn::TestBit(at(p, lane), wanted));
        out[static_cast<std::size_t>(bit)] += static_cast<std::int64_t>(n << p);
      }
    }
  }

 private:
  static constexpr std::size_t planes = 11;  // up to 2^11 - 1 vectors
  alignas(64) std::uint32_t plane_[planes][lanes] = {}, waiting_[lanes] = {};

  HWY_INLINE void ripple(Ints carry, std::size_t lane, std::size_t p) {
    for (; p < planes; ++p) {
      const Ints bits = at(p, lane);
      put(hn::Xor(bits, carry), p, lane);
      carry = hn::And(bits, carry);
    }
  }
  HWY_INLINE Ints at(std::size_t p, std::size_t lane) const { return hn::Load(U(), plane_[p] + lane); }
  HWY_INLINE void put(Ints bits, std::size_t p, std::size_t lane) { hn::Store(bits, U(), plane_[p] + lane); }
};

// The highest bits of eight vectors, row(0) to row(7), are added to `low`; returns the carries, of weight 8.
template <class Row>
HWY_INLINE Ints add_eight(BitCounters::Low& low, Row row) {
  Ints twos[4];
  // Must stay a loop: unrolled, the compilers keep values for later, in memory.
#pragma GCC unroll 1
  for (std::size_t k = 0; k < 8; k += 2) {
    const Ints first = row(k), second = row(k + 1);
    twos[k / 2] = add_bits(low.ones, first, second);
  }
  const Ints fours = add_bits(low.twos, twos[0], twos[1]);
  return add_bits(low.fours, fours, add_bits(low.twos, twos[2], twos[3]));
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace assay
HWY_AFTER_NAMESPACE();
#endif
