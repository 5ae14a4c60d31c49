// The kernel for regular blocks. Included once for each target.
#if defined(ASSAY_COMPARE_FUSED_REGULAR_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef ASSAY_COMPARE_FUSED_REGULAR_INL_H
#undef ASSAY_COMPARE_FUSED_REGULAR_INL_H
#else
#define ASSAY_COMPARE_FUSED_REGULAR_INL_H
#endif

#include <algorithm>
#include <numeric>
#include <type_traits>

#include "assay/compare/measure/fused_walk-inl.h"

HWY_BEFORE_NAMESPACE();
namespace assay {
namespace HWY_NAMESPACE {
namespace {

template <class Codes, class Better>
HWY_INLINE auto best_lane(Codes codes, Better better) {
  const hn::DFromV<Codes> d;
  alignas(64) hn::TFromV<Codes> each[64 / sizeof(hn::TFromV<Codes>)];
  hn::Store(codes, d, each);
  return std::accumulate(each + 1, each + hn::Lanes(d), each[0], better);
}

// The least and the largest value of codes of sign and magnitude, which need not be decoded.
template <class Element>
class CodeRange {
 public:
  using Tag = typename Element::Codes;
  using Code = hn::TFromD<Tag>;
  using Codes = hn::Vec<Tag>;
  static constexpr Code sign = static_cast<Code>(Code{1} << (8 * sizeof(Code) - 1));

  HWY_INLINE CodeRange() : signed_(hn::Set(Tag(), sign)), unsigned_(hn::Zero(Tag())) {}
  HWY_INLINE void add(Codes code) {
    const hn::RebindToSigned<Tag> i;
    signed_ = hn::BitCast(Tag(), hn::Max(hn::BitCast(i, signed_), hn::BitCast(i, code)));
    unsigned_ = hn::Max(unsigned_, code);
  }
  struct Result {
    bool has_negative, has_positive, finite;
    float min, max;  ///< if there are negative, and positive, values
  };
  HWY_INLINE Result result() const {
    using Signed = std::make_signed_t<Code>;
    const Code most = best_lane(unsigned_, [](Code a, Code b) { return std::max(a, b); });
    const Code positive = best_lane(
        signed_, [](Code a, Code b) { return static_cast<Signed>(a) > static_cast<Signed>(b) ? a : b; });
    const bool has_negative = (most & sign) != 0, has_positive = (positive & sign) == 0;
    const auto finite = [](Code magnitude) { return magnitude < Element::infinity_code; };
    return {has_negative, has_positive,
            finite(static_cast<Code>(most & ~sign)) && (!has_positive || finite(positive)),
            Element::value(most), Element::value(positive)};
  }

 private:
  Codes signed_, unsigned_;
};

// The numbers near zero of one side.
struct NearZero {
  float nearest;  ///< the least magnitude
  std::int64_t zero, subnormal;
};
template <class Element>
HWY_INLINE NearZero near_zero(const std::byte* p, std::size_t count) {
  Floats nearest = hn::Set(F(), float_infinity);
  Counter zero, small;
  for (std::size_t i = 0; i < count; i += hn::Lanes(F())) {
    Ints code;
    const Floats magnitude = hn::Abs(Element::load(p, i, code));
    nearest = hn::Min(nearest, magnitude);
    zero.add(hn::Eq(magnitude, hn::Zero(F())));
    small.add(hn::Lt(magnitude, hn::Set(F(), Element::normal)));
  }
  return {least(nearest), zero.total(), small.total() - zero.total()};
}

// The errors and sums of a regular block.
template <class Left, class Right, bool shifted>
class RegularErrors {
 public:
  static constexpr bool alike = std::is_same_v<Left, Right>, two = alike && Left::size == 2;

  explicit HWY_INLINE RegularErrors(const FusedBlock& b)
      : actual_(b.actual),
        reference_(b.reference),
        actual_shift_(hn::Set(F(), b.actual_shift)),
        reference_shift_(hn::Set(F(), b.reference_shift)),
        negative_rtol_(hn::Set(F(), -b.excess_rtol)),
        max_abs_(hn::Zero(F())),
        max_rel_(max_abs_) {}

  // The elements from `step` on. Returns their excess.
  HWY_INLINE Floats add(std::size_t step, LaneSums<sum_count>& lane_sums) {
    excess_ = hn::Set(F(), -float_infinity);
    for (std::size_t lane = 0; lane < lanes; lane += hn::Lanes(F())) {
      sums_ = Sums();
      for (std::size_t i = step; i < step + fused_step; i += two ? 2 * lanes : lanes) add_row(i, lane);
      sums_.put(lane_sums, lane);
    }
    return excess_;
  }
  HWY_INLINE void store(std::int64_t count, FusedResult& to) const {
    to.max_abs = largest(max_abs_);
    to.max_rel = largest(max_rel_);
    to.different = alike ? count - to.histogram[0] : different_.total();
    to.below = below_.total();
    to.above = to.different - to.below;
    to.relatives = count;
  }

 private:
  HWY_INLINE void add_row(std::size_t i, std::size_t lane) {
    const std::byte *a_row = actual_ + i * Left::size, *r_row = reference_ + i * Right::size;
    prefetch_far(a_row + fused_fold * Left::size);
    prefetch_near(a_row);
    prefetch_near(r_row);
    Floats a, r;
    if constexpr (two) {
      Floats a_second, r_second;
      Left::two(a_row, lane, a, a_second);
      Right::two(r_row, lane, r, r_second);
      add_errors(a, r);
      add_errors(a_second, r_second);
    } else {
      Ints code;
      a = Left::load(a_row, lane, code);
      r = Right::load(r_row, lane, code);
      add_errors(a, r);
    }
  }
  HWY_INLINE void add_errors(Floats a, Floats r) {
    const Floats signed_error = hn::Sub(a, r), error = hn::Abs(signed_error), size = hn::Abs(r);
    const Floats relative = hn::Div(error, size);
    sums_.cross = multiply_add(signed_error, r, sums_.cross);
    sums_.square = multiply_add(error, error, sums_.square);
    sums_.abs = hn::Add(sums_.abs, error);
    sums_.relative = hn::Add(sums_.relative, relative);
    max_abs_ = hn::Max(max_abs_, error);
    max_rel_ = hn::Max(max_rel_, relative);
    excess_ = hn::Max(excess_, multiply_add(negative_rtol_, size, error));
    below_.add(hn::Lt(a, r));
    if constexpr (!alike) different_.add(hn::Ne(a, r));
    if constexpr (shifted) {
      a = hn::Sub(a, actual_shift_);
      r = hn::Sub(r, reference_shift_);
    }
    sums_.a = hn::Add(sums_.a, a);
    sums_.aa = multiply_add(a, a, sums_.aa);
    sums_.r = hn::Add(sums_.r, r);
    sums_.rr = multiply_add(r, r, sums_.rr);
  }

  const std::byte *actual_, *reference_;
  const Floats actual_shift_, reference_shift_, negative_rtol_;
  Sums sums_;
  Floats excess_, max_abs_, max_rel_;
  Counter below_, different_;  ///< a < r, and, where ulps do not tell, a != r
};

// The range and the ulps of a regular block, in rows of 16 lanes; in pairs of 16-bit types of 32 elements,
// two for each lane. Ulps are first taken for those of numbers of one sign; where signs differ, eight rows
// are counted again.
template <class Left, class Right>
class RegularCodes {
 public:
  static constexpr bool alike = std::is_same_v<Left, Right>, two = alike && Left::size == 2;
  static constexpr std::size_t row = two ? 2 * lanes : lanes;
  static constexpr int code_shift = alike ? 0 : 16;
  // In pairs with float32, the bits of bfloat16 are those of a float32.
  using Element = std::conditional_t<two, Left, Float32>;
  using Tag = typename Element::Codes;
  using Code = hn::TFromD<Tag>;
  using Codes = hn::Vec<Tag>;

  explicit HWY_INLINE RegularCodes(const FusedBlock& b)
      : actual_(b.actual),
        reference_(b.reference),
        nearest_(hn::Set(Tag(), not_sign)),
        max_ulp_(hn::Zero(Tag())) {}

  // The elements from `begin` to `end`.
  HWY_INLINE void add(std::size_t begin, std::size_t end, BitCounters& counters) {
    for (std::size_t lane = 0; lane < lanes; lane += hn::Lanes(F())) {
      BitCounters::Low low = counters.load(lane);
      for (std::size_t at = begin; at < end; at += 8 * row) {
        const BitCounters::Low before = low;
        const Codes max_ulp = max_ulp_;
        Codes signs = hn::Zero(Tag());
        Ints carry =
            add_eight(low, [&](std::size_t k) HWY_ATTR { return add_row(at + k * row, lane, signs); });
        if (HWY_UNLIKELY(any_sign(signs))) {
          low = before;
          max_ulp_ = max_ulp;
          carry = add_eight(low, [&](std::size_t k) HWY_ATTR { return count_again(at + k * row, lane); });
        }
        counters.carry(carry, lane, at / (8 * row) % 2 != 0);
      }
      counters.store(low, lane);
    }
  }

  // After the errors.
  HWY_INLINE void store(std::size_t count, FusedResult& to) const {
    const auto actual = actual_range_.result(), reference = reference_range_.result();
    const float r_nearest =
        Element::value(best_lane(nearest_, [](Code a, Code b) { return std::min(a, b); }));
    to.regular = actual.finite && reference.finite && r_nearest != 0;
    // |a| >= |r| - |a - r|: few blocks have small ones. Not all roundings of the estimate are down.
    const bool perhaps_small = !(r_nearest * (1 - to.max_rel) > 1.01f * Left::normal);
    float a_nearest = 0;
    if (perhaps_small || !actual.has_negative || !actual.has_positive) {
      const NearZero near = near_zero<Left>(actual_, count);
      a_nearest = near.nearest;
      to.actual.zero = near.zero;
      to.actual.subnormal = near.subnormal;
    }
    if (r_nearest < Right::normal) to.reference.subnormal = near_zero<Right>(reference_, count).subnormal;
    store_range(actual, a_nearest, to.actual);
    store_range(reference, r_nearest, to.reference);
    to.max_ulp = best_lane(max_ulp_, [](Code a, Code b) { return std::max(a, b); });
  }

 private:
  static constexpr Code not_sign = static_cast<Code>(~CodeRange<Element>::sign);

  static HWY_INLINE bool any_sign(Codes codes) {
    const hn::RebindToSigned<Tag> i;
    return !hn::AllFalse(i, hn::Lt(hn::BitCast(i, codes), hn::Zero(i)));
  }
  // Returns the highest bits of the ulps. `signs` gets the sign's bit where signs differ.
  HWY_INLINE Ints add_row(std::size_t at, std::size_t lane, Codes& signs) {
    prefetch_far(reference_ + (at + fused_fold) * Right::size);
    Codes a = load<Left>(actual_, at, lane), r = load<Right>(reference_, at, lane);
    actual_range_.add(a);
    reference_range_.add(r);
    nearest_ = hn::Min(nearest_, hn::And(r, hn::Set(Tag(), not_sign)));
    signs = or_xor(signs, a, r);
    round_to_coarser(a, r);
    const hn::RebindToSigned<Tag> i;
    const Codes ulps = hn::BitCast(Tag(), hn::Abs(hn::Sub(hn::BitCast(i, a), hn::BitCast(i, r))));
    max_ulp_ = hn::Max(max_ulp_, ulps);
    return highest_bit(Tag(), ulps);
  }
  HWY_INLINE Ints count_again(std::size_t at, std::size_t lane) {
    Codes a = load<Left>(actual_, at, lane), r = load<Right>(reference_, at, lane);
    round_to_coarser(a, r);
    const Codes magnitude = hn::Set(Tag(), not_sign);
    const Codes ulps = distance(Tag(), a, r, hn::And(a, magnitude), hn::And(r, magnitude));
    max_ulp_ = hn::Max(max_ulp_, ulps);
    return highest_bit(Tag(), ulps);
  }

  template <class Side>
  static HWY_INLINE Codes load(const std::byte* p, std::size_t i, std::size_t lane) {
    if constexpr (two) {
      return hn::LoadU(Tag(), reinterpret_cast<const Code*>(p) + i + 2 * lane);
    } else {
      Ints code;
      Side::load(p, i + lane, code);
      return code;
    }
  }
  static void store_range(const typename CodeRange<Element>::Result& range, float nearest, FusedSide& to) {
    to.min = (range.has_negative ? range.min : nearest) + 0.0f;  // no -0
    to.max = (range.has_positive ? range.max : -nearest) + 0.0f;
  }
  static HWY_INLINE void round_to_coarser(Codes& a, Codes& r) {
    if constexpr (!alike && Left::size == 4) a = to_bfloat16(a);
    if constexpr (!alike && Right::size == 4) r = to_bfloat16(r);
  }

  const std::byte *actual_, *reference_;
  CodeRange<Element> actual_range_, reference_range_;
  Codes nearest_;  ///< the least |r|
  Codes max_ulp_;
};

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace assay
HWY_AFTER_NAMESPACE();
#endif
