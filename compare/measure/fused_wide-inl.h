// The kernels in float64: for blocks whose float32 sums leave the range, and for what float32 leaves open.
#if defined(ASSAY_COMPARE_FUSED_WIDE_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef ASSAY_COMPARE_FUSED_WIDE_INL_H
#undef ASSAY_COMPARE_FUSED_WIDE_INL_H
#else
#define ASSAY_COMPARE_FUSED_WIDE_INL_H
#endif

#include "assay/compare/measure/fused.h"
#include "assay/compare/measure/fused_vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace assay {
namespace HWY_NAMESPACE {
namespace {

// Float64 sums of 16 lanes.
struct WideLanes {
  alignas(64) double lane[lanes] = {};
  HWY_INLINE void add(Doubles x, std::size_t at) {
    hn::Store(hn::Add(hn::Load(D(), lane + at), x), D(), lane + at);
  }
  double total() const { return tree_sum(std::to_array(lane)); }
};

// The largest errors and the number over the allowed one, by their definitions.
class LargestErrors {
 public:
  explicit LargestErrors(const FusedBlock& block)
      : atol_(hn::Set(D(), block.atol)), rtol_(hn::Set(D(), block.rtol)) {}

  // Elements that are not finite come as two zeros. Returns the relative errors.
  HWY_INLINE Doubles add(Doubles error, Doubles r) {
    const Doubles size = hn::Abs(r), zero = hn::Zero(D());
    const Doubles relative = hn::IfThenElseZero(hn::Ne(size, zero), hn::Div(error, size));
    const Doubles limit = hn::Add(atol_, hn::Mul(rtol_, size));
    // Nothing is allowed: 0 / 0 is 0 where nothing is wrong, and anything else infinite.
    const Doubles ratio = hn::IfThenElseZero(hn::Ne(error, zero), hn::Div(error, limit));
    abs_ = hn::Max(abs_, error);
    relative_ = hn::Max(relative_, relative);
    ratio_ = hn::Max(ratio_, ratio);
    over_ += hn::CountTrue(D(), hn::Gt(error, limit));
    return relative;
  }
  HWY_INLINE void add_over(std::size_t count) { over_ += count; }
  HWY_INLINE ExactErrors result() const {
    const auto largest = [](Doubles x) HWY_ATTR { return hn::GetLane(hn::MaxOfLanes(D(), x)); };
    return {largest(abs_), largest(relative_), largest(ratio_), static_cast<std::int64_t>(over_)};
  }

 private:
  const Doubles atol_, rtol_;
  Doubles abs_ = hn::Zero(D()), relative_ = abs_, ratio_ = abs_;
  std::size_t over_ = 0;
};

template <class Left, class Right>
struct LanePair {
  Floats a, r;
  Mask finite;
  HWY_INLINE LanePair(const FusedBlock& block, std::size_t i) {
    Ints code;
    a = Left::load(block.actual, i, code);
    r = Right::load(block.reference, i, code);
    const Floats infinite = hn::Set(F(), float_infinity);
    finite = hn::And(hn::Lt(hn::Abs(a), infinite), hn::Lt(hn::Abs(r), infinite));
    a = hn::IfThenElseZero(finite, a);
    r = hn::IfThenElseZero(finite, r);
  }
};

template <class Left, class Right>
WideResult wide(const FusedBlock& block) {
  LargestErrors errors(block);
  WideLanes a, aa, r, rr, abs, square, relative, cross;
  const Doubles a_shift = hn::Set(D(), static_cast<double>(block.actual_shift)),
                r_shift = hn::Set(D(), static_cast<double>(block.reference_shift));
  const std::size_t half = hn::Lanes(D());
  for (std::size_t i = 0; i < block.count; i += hn::Lanes(F())) {
    const LanePair<Left, Right> pair(block, i);
    // 1 where both are finite
    const Floats counts = hn::IfThenElseZero(pair.finite, hn::Set(F(), 1.0f));
    const auto part = [&](Doubles x, Doubles y, Doubles count, std::size_t at) HWY_ATTR {
      const Doubles signed_error = hn::Sub(x, y), error = hn::Abs(signed_error);
      const Doubles a_off = hn::Mul(count, hn::Sub(x, a_shift)), r_off = hn::Mul(count, hn::Sub(y, r_shift));
      a.add(a_off, at);
      aa.add(hn::Mul(a_off, a_off), at);
      r.add(r_off, at);
      rr.add(hn::Mul(r_off, r_off), at);
      abs.add(error, at);
      square.add(hn::Mul(error, error), at);
      cross.add(hn::Mul(signed_error, y), at);
      relative.add(errors.add(error, y), at);
    };
    part(lower(pair.a), lower(pair.r), lower(counts), i % lanes);
    part(upper(pair.a), upper(pair.r), upper(counts), i % lanes + half);
  }
  return {errors.result(), abs.total(), square.total(), relative.total(), cross.total(),
          a.total(),       aa.total(),  r.total(),      rr.total()};
}

// Vectors without a candidate are left out: float32 arithmetic decides them.
template <class Left, class Right>
ExactErrors exact_errors(const FusedBlock& block) {
  LargestErrors errors(block);
  for (std::size_t i = 0; i < block.count; i += hn::Lanes(F())) {
    const LanePair<Left, Right> pair(block, i);
    const Floats error = hn::Abs(hn::Sub(pair.a, pair.r)), size = hn::Abs(pair.r);
    const auto limit = [&](float atol, float rtol) HWY_ATTR {
      return hn::Add(hn::Mul(size, hn::Set(F(), rtol)), hn::Set(F(), atol));
    };
    const Mask perhaps_over = hn::Gt(error, limit(block.low_atol, block.low_rtol)),
               surely_over = hn::Gt(error, limit(block.high_atol, block.high_rtol));
    Mask candidate = hn::Xor(perhaps_over, surely_over);
    candidate = hn::Or(candidate, hn::Ge(error, hn::Set(F(), block.abs_floor)));
    candidate = hn::Or(candidate, hn::And(hn::Ge(error, hn::Mul(size, hn::Set(F(), block.rel_floor))),
                                          hn::Ne(size, hn::Zero(F()))));
    candidate = hn::Or(candidate, hn::Gt(error, limit(block.worst_atol, block.worst_rtol)));
    if (!any(candidate)) {
      errors.add_over(hn::CountTrue(F(), surely_over));
      continue;
    }
    const Doubles a_low = lower(pair.a), r_low = lower(pair.r), a_high = upper(pair.a),
                  r_high = upper(pair.r);
    errors.add(hn::Abs(hn::Sub(a_low, r_low)), r_low);
    errors.add(hn::Abs(hn::Sub(a_high, r_high)), r_high);
  }
  return errors.result();
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace assay
HWY_AFTER_NAMESPACE();
#endif
