// Distances in units in the last place, from float64 values. Included once for each target.
#if defined(ASSAY_COMPARE_BLOCK_ULPS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef ASSAY_COMPARE_BLOCK_ULPS_INL_H
#undef ASSAY_COMPARE_BLOCK_ULPS_INL_H
#else
#define ASSAY_COMPARE_BLOCK_ULPS_INL_H
#endif

#include <hwy/highway.h>

#include <cmath>
#include <limits>

#include "assay/compare/measure/block_errors-inl.h"
#include "assay/compare/measure/block_kernels.h"

HWY_BEFORE_NAMESPACE();
namespace assay {
namespace HWY_NAMESPACE {
namespace {

using I = hn::RebindToSigned<D>;
using U = hn::RebindToUnsigned<D>;
using Signed = hn::Vec<I>;
using Unsigned = hn::Vec<U>;

constexpr int fraction_bits = std::numeric_limits<double>::digits - 1;
constexpr double to_last_place = 0x1p52;  // float64 from here on are whole numbers, up to 2^53 all of them
constexpr int exponent_bias = 1023;

HWY_INLINE Signed with_sign_of(Doubles value, Signed magnitude) {
  const Signed sign = hn::BroadcastSignBit(hn::BitCast(I(), value));
  return hn::Sub(hn::Xor(magnitude, sign), sign);
}

struct Float64Ordinals {
  HWY_INLINE Signed operator()(Doubles value) const {
    return with_sign_of(value, hn::BitCast(I(), hn::Abs(value)));
  }
};

// Added to 2^(52 - fraction) times its power of two, a value is rounded to the format's last place, to
// nearest even, and the bits that follow are how many of them it is. As in encode(), carries and subnormal
// numbers come out right by the addition of the exponent.
class RoundedOrdinals {
 public:
  HWY_INLINE explicit RoundedOrdinals(const FloatFormat& f)
      : shift_(fraction_bits - f.fraction_bits),
        least_(hn::Set(D(), std::ldexp(1.0, f.min_exponent()))),
        beyond_(hn::Set(D(), std::ldexp(1.0, f.max_exponent() + 1))),
        anchor_(hn::Set(D(), std::ldexp(1.0, shift_))),
        last_(hn::Set(I(), last_code(f))) {}

  HWY_INLINE Signed operator()(Doubles value) const {
    const Doubles size = hn::Min(hn::Abs(value), beyond_);
    const Doubles power =
        hn::Max(hn::And(size, hn::Set(D(), infinity)), least_);  // its exponent's bits alone
    const Doubles anchor = hn::Mul(power, anchor_);
    const Signed places = hn::Sub(hn::BitCast(I(), hn::Add(size, anchor)), hn::BitCast(I(), anchor));
    const Signed exponent = hn::Sub(hn::BitCast(I(), power), hn::BitCast(I(), least_));
    return with_sign_of(value, hn::Min(hn::Add(hn::ShiftRightSame(exponent, shift_), places), last_));
  }

 private:
  // What values beyond the largest number become: infinity, or NaN where there is none.
  static std::int64_t last_code(const FloatFormat& f) {
    const std::int64_t exponent = (std::int64_t{1} << f.exponent_bits) - 1;
    const std::int64_t infinite = exponent << f.fraction_bits;
    return f.has_infinity ? infinite : infinite + (std::int64_t{1} << f.fraction_bits) - 1;
  }

  int shift_;
  Doubles least_, beyond_, anchor_;
  Signed last_;
};

template <class Ordinal>
HWY_INLINE std::uint64_t distances(Ordinal ordinal, std::span<const double> actual,
                                   std::span<const double> reference, std::uint64_t* ulps) {
  Unsigned largest = hn::Zero(U());
  for (std::size_t i = 0; i < actual.size(); i += hn::Lanes(D())) {
    const Signed a = ordinal(hn::Load(D(), actual.data() + i)),
                 r = ordinal(hn::Load(D(), reference.data() + i));
    // The distance of two float64 may be beyond int64; without a sign it is not.
    const Signed distance = hn::IfThenElse(hn::Gt(a, r), hn::Sub(a, r), hn::Sub(r, a));
    const Unsigned ulp = hn::BitCast(U(), distance);
    hn::Store(ulp, U(), ulps + i);
    largest = hn::Max(largest, ulp);
  }
  return hn::GetLane(hn::MaxOfLanes(U(), largest));
}

}  // namespace

HWY_NOINLINE std::uint64_t subtract_ordinals_on(DType unit, std::span<const double> actual,
                                                std::span<const double> reference, std::uint64_t* ulps) {
  if (unit == DType::float64) return distances(Float64Ordinals(), actual, reference, ulps);
  return distances(RoundedOrdinals(format_of(unit)), actual, reference, ulps);
}

HWY_NOINLINE std::uint64_t whole_distances_on(std::span<const double> difference, std::uint64_t* ulps) {
  const Doubles anchor = hn::Set(D(), to_last_place);
  Unsigned largest = hn::Zero(U());
  for (std::size_t i = 0; i < difference.size(); i += hn::Lanes(D())) {
    const Doubles moved = hn::Add(hn::Abs(hn::Load(D(), difference.data() + i)), anchor);
    const Unsigned ulp = hn::Xor(hn::BitCast(U(), moved), hn::BitCast(U(), anchor));
    hn::Store(ulp, U(), ulps + i);
    largest = hn::Max(largest, ulp);
  }
  return hn::GetLane(hn::MaxOfLanes(U(), largest));
}

// The width of x is the exponent of 2 x + 1 as float64; of x beyond 32 bits, that of its high half and 32.
HWY_NOINLINE void to_bit_widths_on(std::span<std::uint64_t> numbers) {
  const Doubles anchor = hn::Set(D(), to_last_place);
  const Unsigned zero = hn::Zero(U()), one = hn::Set(U(), 1), bias = hn::Set(U(), exponent_bias),
                 half = hn::Set(U(), 32);
  for (std::size_t i = 0; i < numbers.size(); i += hn::Lanes(D())) {
    const Unsigned x = hn::Load(U(), &numbers[i]), high = hn::ShiftRight<32>(x);
    const auto is_low = hn::Eq(high, zero);
    const Unsigned part = hn::IfThenElse(is_low, x, high);
    const Unsigned odd = hn::Or(hn::Add(part, part), one);
    const Doubles value = hn::Sub(hn::BitCast(D(), hn::Or(odd, hn::BitCast(U(), anchor))), anchor);
    const Unsigned width = hn::Sub(hn::ShiftRight<fraction_bits>(hn::BitCast(U(), value)), bias);
    hn::Store(hn::Add(width, hn::IfThenZeroElse(is_low, half)), U(), &numbers[i]);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace assay
HWY_AFTER_NAMESPACE();
#endif
