// The kernels for blocks of any numbers, and for one side. Included once for each target.
#if defined(ASSAY_COMPARE_FUSED_ANY_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef ASSAY_COMPARE_FUSED_ANY_INL_H
#undef ASSAY_COMPARE_FUSED_ANY_INL_H
#else
#define ASSAY_COMPARE_FUSED_ANY_INL_H
#endif

#include "assay/compare/measure/fused_regular-inl.h"

HWY_BEFORE_NAMESPACE();
namespace assay {
namespace HWY_NAMESPACE {
namespace {

// Least, largest and the counts of one side. Not Ne for NaN: it is false with AVX and true without.
template <class Element>
class Extent {
 public:
  HWY_INLINE Extent() : low_(hn::Set(F(), float_infinity)), high_(hn::Set(F(), -float_infinity)) {}
  // Returns which are finite.
  HWY_INLINE Mask add(Floats x, Floats magnitude) {
    const Mask number = hn::Eq(x, x), finite = hn::Lt(magnitude, hn::Set(F(), float_infinity));
    numbers_.add(number);
    finite_.add(finite);
    zero_.add(hn::Eq(x, hn::Zero(F())));
    small_.add(hn::Lt(magnitude, hn::Set(F(), Element::normal)));
    low_ = hn::IfThenElse(number, hn::Min(low_, x), low_);
    high_ = hn::IfThenElse(number, hn::Max(high_, x), high_);
    return finite;
  }
  // Whether all are finite.
  HWY_INLINE bool store(std::int64_t count, FusedSide& side) const {
    side.min = least(low_) + 0.0f;  // no -0
    side.max = largest(high_) + 0.0f;
    side.zero = zero_.total();
    side.subnormal = small_.total() - side.zero;
    side.nan = count - numbers_.total();
    side.infinite = numbers_.total() - finite_.total();
    return finite_.total() == count;
  }

 private:
  Floats low_, high_;
  Counter numbers_, finite_, zero_, small_;
};

// As RegularErrors, of any block.
template <class Left, class Right>
class AnyErrors {
 public:
  static constexpr bool alike = std::is_same_v<Left, Right>;

  explicit HWY_INLINE AnyErrors(const FusedBlock& b)
      : block_(b), max_abs_(hn::Zero(F())), max_rel_(max_abs_), mismatch_(hn::MaskFromVec(max_abs_)) {}

  HWY_INLINE Floats add(std::size_t step, LaneSums<sum_count>& lane_sums) {
    excess_ = hn::Set(F(), -float_infinity);
    for (std::size_t lane = 0; lane < lanes; lane += hn::Lanes(F())) {
      sums_ = Sums();
      for (std::size_t i = step + lane; i < step + fused_step; i += lanes) add_row(i);
      sums_.put(lane_sums, lane);
    }
    return excess_;
  }
  HWY_INLINE void store(std::int64_t count, FusedResult& to) const {
    const bool actual = actual_.store(count, to.actual), reference = reference_.store(count, to.reference);
    to.regular = actual && reference && to.reference.zero == 0;
    to.max_abs = largest(max_abs_);
    to.max_rel = largest(max_rel_);
    to.above = above_.total();
    to.below = below_.total();
    to.different = different_.total();
    to.special = count - finite_.total();
    to.relatives = relatives_.total();
    to.mismatch = any(mismatch_);
  }

 private:
  HWY_INLINE void add_row(std::size_t i) {
    prefetch_far(block_.actual + (i + fused_fold) * Left::size);
    Ints a_code, r_code;
    const Floats a = Left::load(block_.actual, i, a_code), r = Right::load(block_.reference, i, r_code);
    const Mask a_finite = actual_.add(a, hn::Abs(a)),
               finite = hn::And(a_finite, reference_.add(r, hn::Abs(r)));
    const Mask both_nan = hn::Not(hn::Or(hn::Eq(a, a), hn::Eq(r, r))), same = hn::Or(both_nan, hn::Eq(a, r));
    different_.add(alike ? hn::RebindMask(F(), hn::Ne(a_code, r_code)) : hn::Not(same));
    finite_.add(finite);
    mismatch_ = hn::Or(mismatch_, hn::Not(hn::Or(finite, same)));
    add_errors(a, r, finite);
  }
  HWY_INLINE void add_errors(Floats a, Floats r, Mask finite) {
    Floats a_off = hn::Sub(a, hn::Set(F(), block_.actual_shift)),
           r_off = hn::Sub(r, hn::Set(F(), block_.reference_shift));
    a_off = hn::IfThenElseZero(finite, a_off);
    r_off = hn::IfThenElseZero(finite, r_off);
    sums_.a = hn::Add(sums_.a, a_off);
    sums_.aa = multiply_add(a_off, a_off, sums_.aa);
    sums_.r = hn::Add(sums_.r, r_off);
    sums_.rr = multiply_add(r_off, r_off, sums_.rr);
    r = hn::IfThenElseZero(finite, r);
    const Floats signed_error = hn::IfThenElseZero(finite, hn::Sub(a, r)), error = hn::Abs(signed_error),
                 size = hn::Abs(r);
    const Mask measured = hn::Gt(size, hn::Zero(F()));
    const Floats relative = hn::IfThenElseZero(measured, hn::Div(error, size));
    relatives_.add(measured);
    above_.add(hn::Gt(signed_error, hn::Zero(F())));
    below_.add(hn::Lt(signed_error, hn::Zero(F())));
    sums_.cross = multiply_add(signed_error, r, sums_.cross);
    sums_.square = multiply_add(error, error, sums_.square);
    sums_.abs = hn::Add(sums_.abs, error);
    sums_.relative = hn::Add(sums_.relative, relative);
    max_abs_ = hn::Max(max_abs_, error);
    max_rel_ = hn::Max(max_rel_, relative);
    excess_ = hn::Max(excess_, multiply_add(hn::Set(F(), -block_.excess_rtol), size, error));
  }

  const FusedBlock& block_;
  Sums sums_;
  Extent<Left> actual_;
  Extent<Right> reference_;
  Floats excess_, max_abs_, max_rel_;
  Mask mismatch_;
  Counter finite_, above_, below_, different_, relatives_;
};

// As RegularCodes, always in rows of 16 elements: the ulps of those that are finite on both sides.
template <class Left, class Right>
class AnyCodes {
 public:
  static constexpr bool alike = std::is_same_v<Left, Right>, two = false;
  static constexpr std::size_t row = lanes;
  static constexpr int code_shift = Left::size == 4 && Right::size == 4 ? 0 : 16;

  explicit HWY_INLINE AnyCodes(const FusedBlock& b) : block_(b), max_ulp_(hn::Zero(U())) {}

  HWY_INLINE void add(std::size_t begin, std::size_t end, BitCounters& counters) {
    Ints max_ulp = max_ulp_;
    for (std::size_t lane = 0; lane < lanes; lane += hn::Lanes(F())) {
      BitCounters::Low low = counters.load(lane);
      for (std::size_t at = begin; at < end; at += 8 * row) {
        const Ints carry = add_eight(low, [&](std::size_t k) HWY_ATTR {
          const Ints ulps = distances(at + k * row + lane);
          max_ulp = hn::Max(max_ulp, ulps);
          return highest_bit(U(), ulps);
        });
        counters.carry(carry, lane, at / (8 * row) % 2 != 0);
      }
      counters.store(low, lane);
    }
    max_ulp_ = max_ulp;
  }
  HWY_INLINE void store(std::size_t, FusedResult& to) const {
    to.max_ulp = hn::GetLane(hn::MaxOfLanes(U(), max_ulp_));
  }

 private:
  // Where the code of 32 bits has the element's.
  static constexpr auto infinity =
      static_cast<std::int32_t>(Left::infinity_code << (Left::size == 4 ? 0 : 16));

  HWY_INLINE Ints distances(std::size_t i) const {
    prefetch_far(block_.reference + (i + fused_fold) * Right::size);
    Ints a, r;
    Left::load(block_.actual, i, a);
    Right::load(block_.reference, i, r);
    const Ints not_sign = hn::Set(U(), 0x7fffffff);
    Ints a_magnitude = hn::And(a, not_sign), r_magnitude = hn::And(r, not_sign);
    const auto finite = hn::Lt(hn::BitCast(I(), hn::Max(a_magnitude, r_magnitude)), hn::Set(I(), infinity));
    if constexpr (!alike && Left::size == 4) a_magnitude = to_bfloat16(a_magnitude);
    if constexpr (!alike && Right::size == 4) r_magnitude = to_bfloat16(r_magnitude);
    return hn::IfThenElseZero(hn::RebindMask(U(), finite), distance(U(), a, r, a_magnitude, r_magnitude));
  }

  const FusedBlock& block_;
  Ints max_ulp_;
};

// The sums and counts of one side, of a block of any numbers.
template <class Element>
HWY_INLINE FusedSide one_side(const FusedBlock& block) {
  Extent<Element> extent;
  LaneSums<2> lane_sums;
  const Floats shift = hn::Set(F(), block.actual_shift);
  for (std::size_t at = 0; at < block.count; at += fused_step) {
    for (std::size_t lane = 0; lane < lanes; lane += hn::Lanes(F())) {
      Floats sum = hn::Zero(F()), square = sum;
      for (std::size_t i = at + lane; i < at + fused_step; i += lanes) {
        Ints code;
        const Floats x = Element::load(block.actual, i, code);
        const Floats off = hn::IfThenElseZero(extent.add(x, hn::Abs(x)), hn::Sub(x, shift));
        sum = hn::Add(sum, off);
        square = multiply_add(off, off, square);
      }
      lane_sums.put(0, lane, sum);
      lane_sums.put(1, lane, square);
    }
    if ((at + fused_step) % fused_fold == 0 || at + fused_step == block.count) lane_sums.fold();
  }
  FusedSide side{};
  extent.store(static_cast<std::int64_t>(block.count), side);
  side.sum = lane_sums.total(0);
  side.squares = lane_sums.total(1);
  return side;
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace assay
HWY_AFTER_NAMESPACE();
#endif
