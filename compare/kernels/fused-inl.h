// The kernel for regular blocks. Included once for each target.
#if defined(ASSAY_COMPARE_FUSED_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef ASSAY_COMPARE_FUSED_INL_H
#undef ASSAY_COMPARE_FUSED_INL_H
#else
#define ASSAY_COMPARE_FUSED_INL_H
#endif

#include <algorithm>
#include <numeric>
#include <type_traits>

#include "assay/compare/kernels/fused.h"
#include "assay/compare/kernels/fused_ulps-inl.h"

HWY_BEFORE_NAMESPACE();
namespace assay {
namespace HWY_NAMESPACE {
namespace {

// What codes of sign and magnitude say of the values, which need not be decoded.
template <class Element>
class CodeRange {
 public:
  using Tag = typename Element::Codes;
  using Code = hn::TFromD<Tag>;
  using Codes = hn::Vec<Tag>;
  static constexpr Code sign = static_cast<Code>(Code{1} << (8 * sizeof(Code) - 1));

  HWY_INLINE CodeRange()
      : least_magnitude_(hn::Set(Tag(), static_cast<Code>(~sign))),
        signed_(hn::Set(Tag(), sign)),
        unsigned_(hn::Zero(Tag())) {}
  HWY_INLINE void add(Codes code, Codes magnitude) {
    const hn::RebindToSigned<Tag> i;
    least_magnitude_ = hn::Min(least_magnitude_, magnitude);
    signed_ = hn::BitCast(Tag(), hn::Max(hn::BitCast(i, signed_), hn::BitCast(i, code)));
    unsigned_ = hn::Max(unsigned_, code);
  }
  struct Result {
    float min, max;
    bool finite, has_zero, has_small;  ///< small: zero or subnormal
  };
  HWY_INLINE Result result() const {
    using Signed = std::make_signed_t<Code>;
    const Code nearest = over_lanes(least_magnitude_, [](Code a, Code b) { return std::min(a, b); });
    const Code most = over_lanes(unsigned_, [](Code a, Code b) { return std::max(a, b); });
    const Code positive = over_lanes(
        signed_, [](Code a, Code b) { return static_cast<Signed>(a) > static_cast<Signed>(b) ? a : b; });
    const bool has_negative = (most & sign) != 0, has_positive = (positive & sign) == 0;
    const auto finite = [](Code magnitude) { return magnitude < Element::infinity_code; };
    return {Element::value(has_negative ? most : nearest) + 0.0f,  // no -0
            Element::value(has_positive ? positive : static_cast<Code>(nearest | sign)) + 0.0f,
            finite(static_cast<Code>(most & ~sign)) && (!has_positive || finite(positive)), nearest == 0,
            nearest < Element::normal_code};
  }

 private:
  template <class Better>
  static HWY_INLINE Code over_lanes(Codes codes, Better better) {
    alignas(64) Code each[64 / sizeof(Code)];
    hn::Store(codes, Tag(), each);
    return std::accumulate(each + 1, each + hn::Lanes(Tag()), each[0], better);
  }

  Codes least_magnitude_, signed_, unsigned_;
};

enum Sum {
  actual_sum,
  actual_squares,
  reference_sum,
  reference_squares,
  abs_sum,
  square_sum,
  relative_sum,
  cross_sum,
  sum_count
};

struct Sums {
  Floats a, aa, r, rr, abs, square, relative, cross;
  HWY_INLINE Sums() : a(hn::Zero(F())), aa(a), r(a), rr(a), abs(a), square(a), relative(a), cross(a) {}
  HWY_INLINE void put(LaneSums<sum_count>& to, std::size_t lane) const {
    to.put(actual_sum, lane, a);
    to.put(actual_squares, lane, aa);
    to.put(reference_sum, lane, r);
    to.put(reference_squares, lane, rr);
    to.put(abs_sum, lane, abs);
    to.put(square_sum, lane, square);
    to.put(relative_sum, lane, relative);
    to.put(cross_sum, lane, cross);
  }
};
HWY_INLINE void store(const LaneSums<sum_count>& from, FusedResult& to) {
  to.actual.sum = from.total(actual_sum);
  to.actual.squares = from.total(actual_squares);
  to.reference.sum = from.total(reference_sum);
  to.reference.squares = from.total(reference_squares);
  to.abs = from.total(abs_sum);
  to.square = from.total(square_sum);
  to.relative = from.total(relative_sum);
  to.cross = from.total(cross_sum);
}

template <class Element>
HWY_INLINE void count_small(const std::byte* p, std::int64_t count, FusedSide& side) {
  Counter zero, small;
  for (std::size_t i = 0; i < static_cast<std::size_t>(count); i += hn::Lanes(F())) {
    Ints code;
    const Floats x = Element::load(p, i, code);
    zero.add(hn::Eq(x, hn::Zero(F())));
    small.add(hn::Lt(hn::Abs(x), hn::Set(F(), Element::normal)));
  }
  side.zero = zero.total();
  side.subnormal = small.total() - side.zero;
}

// Rows of a regular block, walked by `add_eight`: 16 lanes of both sides, in pairs of 16-bit types
// 32 elements, two for each lane.
template <class Left, class Right, bool shifted>
class RegularRows {
 public:
  static constexpr bool alike = std::is_same_v<Left, Right>, two = alike && Left::size == 2;
  static constexpr std::size_t row = two ? 2 * lanes : lanes;
  static constexpr int code_shift = alike ? 0 : 16;
  // In pairs with float32, the bits of bfloat16 are those of a float32.
  using Element = std::conditional_t<two, Left, Float32>;
  using Codes = typename Element::Codes;

  explicit HWY_INLINE RegularRows(const FusedBlock& b)
      : actual_(b.actual),
        reference_(b.reference),
        actual_shift_(hn::Set(F(), b.actual_shift)),
        reference_shift_(hn::Set(F(), b.reference_shift)),
        negative_rtol_(hn::Set(F(), -b.excess_rtol)),
        max_abs_(hn::Zero(F())),
        max_rel_(max_abs_),
        below_(hn::Zero(U())),
        different_(below_),
        max_ulp_(hn::Zero(Codes())) {}

  // Goes on to eight rows from element `at` on, of them to the lanes from `lane` on.
  HWY_INLINE void go_to(std::size_t at, std::size_t lane) {
    at_ = at;
    lane_ = lane;
  }
  HWY_INLINE Ints add(std::size_t k) {
    const std::size_t i = at_ + k * row;
    const std::byte *a_row = actual_ + i * Left::size, *r_row = reference_ + i * Right::size;
    prefetch(a_row);
    prefetch(r_row);
    if constexpr (two) {
      Floats a, a_second, r, r_second;
      const auto a_code = Left::two(a_row, lane_, a, a_second),
                 r_code = Right::two(r_row, lane_, r, r_second);
      const Ints bits = add_codes(a_code, r_code);
      add_errors(a, r);
      add_errors(a_second, r_second);
      return bits;
    } else {
      Ints a_code, r_code;
      const Floats a = Left::load(a_row, lane_, a_code), r = Right::load(r_row, lane_, r_code);
      const Ints bits = add_codes(a_code, r_code);
      add_errors(a, r);
      return bits;
    }
  }
  Sums sums;
  Floats excess;  // of the step

  HWY_INLINE void store(std::int64_t count, FusedResult& to) const {
    const auto actual = actual_range_.result(), reference = reference_range_.result();
    to.regular = actual.finite && reference.finite && !reference.has_zero;
    to.actual.min = actual.min;
    to.actual.max = actual.max;
    to.reference.min = reference.min;
    to.reference.max = reference.max;
    // Most blocks have none.
    if (actual.has_small) count_small<Left>(actual_, count, to.actual);
    if (reference.has_small) count_small<Right>(reference_, count, to.reference);
    to.max_abs = largest(max_abs_);
    to.max_rel = largest(max_rel_);
    const auto total = [](Ints counts) HWY_ATTR {
      return static_cast<std::int64_t>(hn::GetLane(hn::SumOfLanes(U(), counts)));
    };
    to.different = alike ? count - to.histogram[0] : total(different_);
    to.below = total(below_);
    to.above = to.different - to.below;
    to.relatives = count;
    alignas(64) hn::TFromD<Codes> ulps[64 / sizeof(hn::TFromD<Codes>)];
    hn::Store(max_ulp_, Codes(), ulps);
    to.max_ulp = *std::max_element(ulps, ulps + hn::Lanes(Codes()));
  }

 private:
  HWY_INLINE void add_errors(Floats a, Floats r) {
    const Floats signed_error = hn::Sub(a, r), error = hn::Abs(signed_error), size = hn::Abs(r);
    const Floats relative = hn::Div(error, size);
    sums.cross = multiply_add(signed_error, r, sums.cross);
    sums.square = multiply_add(error, error, sums.square);
    sums.abs = hn::Add(sums.abs, error);
    sums.relative = hn::Add(sums.relative, relative);
    max_abs_ = hn::Max(max_abs_, error);
    max_rel_ = hn::Max(max_rel_, relative);
    excess = hn::Max(excess, multiply_add(negative_rtol_, size, error));
    below_ = hn::Add(below_, hn::ShiftRight<31>(hn::BitCast(U(), signed_error)));
    if constexpr (!alike) {
      const auto differs = hn::RebindMask(U(), hn::Ne(a, r));
      different_ = hn::IfThenElse(differs, hn::Add(different_, hn::Set(U(), 1)), different_);
    }
    if constexpr (shifted) {
      a = hn::Sub(a, actual_shift_);
      r = hn::Sub(r, reference_shift_);
    }
    sums.a = hn::Add(sums.a, a);
    sums.aa = multiply_add(a, a, sums.aa);
    sums.r = hn::Add(sums.r, r);
    sums.rr = multiply_add(r, r, sums.rr);
  }
  // The highest bits of the ulps.
  HWY_INLINE Ints add_codes(hn::Vec<Codes> a, hn::Vec<Codes> r) {
    const auto not_sign = hn::Set(Codes(), static_cast<hn::TFromD<Codes>>(~CodeRange<Element>::sign));
    auto a_magnitude = hn::And(a, not_sign), r_magnitude = hn::And(r, not_sign);
    actual_range_.add(a, a_magnitude);
    reference_range_.add(r, r_magnitude);
    if constexpr (!alike && Left::size == 4) a_magnitude = to_bfloat16(a_magnitude);
    if constexpr (!alike && Right::size == 4) r_magnitude = to_bfloat16(r_magnitude);
    const auto ulps = distance(Codes(), a, r, a_magnitude, r_magnitude);
    max_ulp_ = hn::Max(max_ulp_, ulps);
    return highest_bit(Codes(), ulps);
  }

  const std::byte *actual_, *reference_;
  const Floats actual_shift_, reference_shift_, negative_rtol_;
  std::size_t at_ = 0, lane_ = 0;
  CodeRange<Element> actual_range_, reference_range_;
  Floats max_abs_, max_rel_;
  Ints below_, different_;  ///< how often a < r, and, where ulps do not tell, a != r
  hn::Vec<Codes> max_ulp_;
};

// How many ulps have their highest bit at k - 1. Codes of 16 bits lie in both halves of 32, or in the high
// one.
template <class Rows>
std::array<std::int64_t, 33> histogram(const BitCounters& ulps, std::int64_t all) {
  std::array<std::int64_t, 32> bits{};
  ulps.count(bits);
  std::array<std::int64_t, 33> out{};
  for (std::size_t k = Rows::code_shift; k < 32; ++k) {
    const std::size_t power = Rows::two ? k % 16 : k - Rows::code_shift;
    out[power + 1] += bits[k];
    all -= bits[k];
  }
  out[0] = all;
  return out;
}

template <class Rows>
HWY_INLINE FusedResult walk(const FusedBlock& block) {
  constexpr std::size_t eight = 8 * Rows::row;
  Rows rows(block);
  BitCounters ulps;
  LaneSums<sum_count> lane_sums;
  FusedResult r{};
  for (std::size_t at = 0; at < block.count; at += fused_step) {
    rows.excess = hn::Set(F(), -float_infinity);
    for (std::size_t lane = 0; lane < lanes; lane += hn::Lanes(F())) {
      rows.sums = Sums();
      for (std::size_t i = at; i < at + fused_step; i += eight) {
        BitCounters::Low low = ulps.load(lane);
        rows.go_to(i, lane);
        const Ints carry = add_eight(rows, low);
        ulps.store(low, carry, lane, i / eight % 2 != 0);
      }
      rows.sums.put(lane_sums, lane);
    }
    lane_sums.fold();
    r.excess[at / fused_step] = largest(rows.excess);
  }
  ulps.finish();
  store(lane_sums, r);
  r.histogram = histogram<Rows>(ulps, static_cast<std::int64_t>(block.count));
  rows.store(static_cast<std::int64_t>(block.count), r);
  r.max_ulp >>= Rows::code_shift;
  return r;
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace assay
HWY_AFTER_NAMESPACE();
#endif
