// The walk of a pair's kernels over a block. Included once for each target.
#if defined(ASSAY_COMPARE_FUSED_WALK_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef ASSAY_COMPARE_FUSED_WALK_INL_H
#undef ASSAY_COMPARE_FUSED_WALK_INL_H
#else
#define ASSAY_COMPARE_FUSED_WALK_INL_H
#endif

#include <algorithm>

#include "assay/compare/measure/fused.h"
#include "assay/compare/measure/fused_ulps-inl.h"

HWY_BEFORE_NAMESPACE();
namespace assay {
namespace HWY_NAMESPACE {
namespace {

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

// The largest excess of each step; one by one only if any of them matters.
class StepExcess {
 public:
  HWY_INLINE StepExcess() : all_(hn::Set(F(), -float_infinity)) {}
  HWY_INLINE void put(std::size_t step, Floats excess) {
    hn::Store(excess, F(), steps_[step]);
    all_ = hn::Max(all_, excess);
  }
  HWY_INLINE void store(const FusedBlock& block, FusedResult& to) const {
    const bool matters = largest(all_) > block.excess_atol;
    for (std::size_t k = 0; k < block.count / fused_step; ++k)
      to.excess[k] = matters ? largest(hn::Load(F(), steps_[k])) : -float_infinity;
  }

 private:
  alignas(64) float steps_[fused_block / fused_step][lanes];
  Floats all_;
};

// How many ulps have their highest bit at k - 1. Codes of 16 bits lie in both halves of 32, or in the high
// one.
template <class Codes>
std::array<std::int64_t, 33> histogram(const BitCounters& counters, std::int64_t all) {
  std::array<std::int64_t, 32> bits{};
  counters.count(bits);
  std::array<std::int64_t, 33> out{};
  for (std::size_t k = Codes::code_shift; k < 32; ++k) {
    const std::size_t power = Codes::two ? k % 16 : k - Codes::code_shift;
    out[power + 1] += bits[k];
    all -= bits[k];
  }
  out[0] = all;
  return out;
}

// First the errors, then the codes, of as much as stays in the first cache: both at once would need more
// registers than there are.
template <class Errors, class Codes>
HWY_INLINE FusedResult walk(const FusedBlock& block) {
  Errors errors(block);
  Codes codes(block);
  LaneSums<sum_count> lane_sums;
  StepExcess excess;
  BitCounters ulps;
  for (std::size_t begin = 0; begin < block.count; begin += fused_fold) {
    const std::size_t end = std::min(begin + fused_fold, block.count);
    for (std::size_t at = begin; at < end; at += fused_step)
      excess.put(at / fused_step, errors.add(at, lane_sums));
    lane_sums.fold();
    codes.add(begin, end, ulps);
  }
  ulps.finish();
  FusedResult r{};
  store(lane_sums, r);
  excess.store(block, r);
  const auto count = static_cast<std::int64_t>(block.count);
  r.histogram = histogram<Codes>(ulps, count);
  errors.store(count, r);
  codes.store(block.count, r);
  r.max_ulp >>= Codes::code_shift;
  return r;
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace assay
HWY_AFTER_NAMESPACE();
#endif
