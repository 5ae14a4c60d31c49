// Counts, errors and sums of a block in float64. Included once for each target.
#if defined(ASSAY_COMPARE_BLOCK_ERRORS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef ASSAY_COMPARE_BLOCK_ERRORS_INL_H
#undef ASSAY_COMPARE_BLOCK_ERRORS_INL_H
#else
#define ASSAY_COMPARE_BLOCK_ERRORS_INL_H
#endif

#include <hwy/highway.h>

#include <cstring>

#include "assay/compare/measure/block_kernels.h"

HWY_BEFORE_NAMESPACE();
namespace assay {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

using D = hn::CappedTag<double, block_lanes>;
using Doubles = hn::Vec<D>;

HWY_INLINE std::int64_t count_true(hn::Mask<D> mask) {
  return static_cast<std::int64_t>(hn::CountTrue(D(), mask));
}

// Of vectors that hold `lane` and those behind it.
struct LaneSum {
  alignas(64) double lane[block_lanes];
  HWY_INLINE void put(Doubles x, std::size_t at) { hn::Store(x, D(), lane + at); }
  double total() const {
    return ((lane[0] + lane[1]) + (lane[2] + lane[3])) + ((lane[4] + lane[5]) + (lane[6] + lane[7]));
  }
};

template <class Code>
std::int64_t different_codes(const std::byte* actual, const std::byte* reference, std::size_t count) {
  const hn::ScalableTag<Code> d;
  const auto *a = reinterpret_cast<const Code*>(actual), *r = reinterpret_cast<const Code*>(reference);
  const std::size_t whole = count / hn::Lanes(d) * hn::Lanes(d);
  std::size_t equal = 0;
  for (std::size_t i = 0; i < whole; i += hn::Lanes(d))
    equal += hn::CountTrue(d, hn::Eq(hn::LoadU(d, a + i), hn::LoadU(d, r + i)));
  for (std::size_t i = whole; i < count; ++i) {
    const std::size_t at = i * sizeof(Code);
    equal += std::memcmp(actual + at, reference + at, sizeof(Code)) == 0 ? 1 : 0;
  }
  return static_cast<std::int64_t>(count - equal);
}

}  // namespace

HWY_NOINLINE ValueCounts count_values_on(std::span<const double> values, double normal) {
  const Doubles infinite = hn::Set(D(), infinity), zero = hn::Zero(D()), least = hn::Set(D(), normal);
  Doubles low = infinite, high = hn::Neg(infinite);
  ValueCounts n{};
  for (std::size_t i = 0; i < values.size(); i += hn::Lanes(D())) {
    const Doubles v = hn::Load(D(), values.data() + i), size = hn::Abs(v);
    const auto plain = hn::And(hn::And(hn::Gt(size, zero), hn::Ge(size, least)), hn::Lt(size, infinite));
    if (!hn::AllTrue(D(), plain)) {
      n.nan += count_true(hn::IsNaN(v));
      n.infinite += count_true(hn::Eq(size, infinite));
      n.zero += count_true(hn::Eq(v, zero));
      n.small += count_true(hn::Lt(size, least));
    }
    low = hn::IfThenElse(hn::Lt(v, low), v, low);  // not Min: NaN is neither
    high = hn::IfThenElse(hn::Gt(v, high), v, high);
  }
  n.min = hn::GetLane(hn::MinOfLanes(D(), low));
  n.max = hn::GetLane(hn::MaxOfLanes(D(), high));
  return n;
}

HWY_NOINLINE std::int64_t different_elements_on(std::span<const std::byte> actual,
                                                std::span<const std::byte> reference, std::size_t size) {
  const std::size_t count = actual.size() / size;
  switch (size) {
    case 8:
      return different_codes<std::uint64_t>(actual.data(), reference.data(), count);
    case 4:
      return different_codes<std::uint32_t>(actual.data(), reference.data(), count);
    case 2:
      return different_codes<std::uint16_t>(actual.data(), reference.data(), count);
    default:
      return different_codes<std::uint8_t>(actual.data(), reference.data(), count);
  }
}

HWY_NOINLINE void subtract_on(std::span<const double> actual, std::span<const double> reference,
                              double* difference) {
  for (std::size_t i = 0; i < actual.size(); i += hn::Lanes(D())) {
    const Doubles a = hn::Load(D(), actual.data() + i), r = hn::Load(D(), reference.data() + i);
    hn::Store(hn::Sub(a, r), D(), difference + i);
  }
}

HWY_NOINLINE void allowed_errors_on(std::span<const double> reference, double atol, double rtol,
                                    double* limit) {
  const Doubles constant = hn::Set(D(), atol), factor = hn::Set(D(), rtol);
  for (std::size_t i = 0; i < reference.size(); i += hn::Lanes(D())) {
    const Doubles size = hn::Abs(hn::Load(D(), reference.data() + i));
    hn::Store(hn::Add(constant, hn::Mul(factor, size)), D(), limit + i);
  }
}

// One walk for each vector of the lanes, so that the sums stay in registers.
HWY_NOINLINE ErrorTotals add_errors_on(const ErrorArrays& x) {
  const Doubles zero = hn::Zero(D()), infinite = hn::Set(D(), infinity);
  LaneSum abs, square, relative, cross, actual, actual_square, reference, reference_square;
  Doubles max_abs = zero, max_rel = zero, max_ratio = zero;
  std::int64_t above = 0, below = 0, within = 0, relatives = 0;
  for (std::size_t lane = 0; lane < block_lanes; lane += hn::Lanes(D())) {
    Doubles e1 = zero, e2 = zero, rel = zero, er = zero, a1 = zero, a2 = zero, r1 = zero, r2 = zero;
    for (std::size_t i = lane; i < x.count; i += block_lanes) {
      const Doubles a = hn::Load(D(), x.actual + i), r = hn::Load(D(), x.reference + i);
      const Doubles d = hn::Load(D(), x.difference + i), limit = hn::Load(D(), x.limit + i);
      const Doubles error = hn::Abs(d);
      e1 = hn::Add(e1, error);
      e2 = hn::Add(e2, hn::Mul(d, d));
      er = hn::Add(er, hn::Mul(d, r));
      a1 = hn::Add(a1, a);
      a2 = hn::Add(a2, hn::Mul(a, a));
      r1 = hn::Add(r1, r);
      r2 = hn::Add(r2, hn::Mul(r, r));
      above += count_true(hn::Gt(d, zero));
      below += count_true(hn::Lt(d, zero));
      const auto has_relative = hn::Ne(r, zero);
      relatives += count_true(has_relative);
      const Doubles own = hn::IfThenElseZero(has_relative, hn::Div(error, hn::Abs(r)));
      rel = hn::Add(rel, own);
      const auto passes = hn::Le(error, limit);  // false for NaN
      within += count_true(passes);
      const Doubles quotient = hn::Div(error, limit);
      const Doubles ratio = hn::IfThenElse(hn::Gt(limit, zero),  //
                                           hn::IfThenElseZero(hn::Gt(quotient, zero), quotient),
                                           hn::IfThenElse(passes, zero, infinite));
      max_abs = hn::Max(max_abs, error);
      max_rel = hn::Max(max_rel, own);
      max_ratio = hn::Max(max_ratio, ratio);
    }
    abs.put(e1, lane);
    square.put(e2, lane);
    relative.put(rel, lane);
    cross.put(er, lane);
    actual.put(a1, lane);
    actual_square.put(a2, lane);
    reference.put(r1, lane);
    reference_square.put(r2, lane);
  }
  const auto largest = [](Doubles v) HWY_ATTR { return hn::GetLane(hn::MaxOfLanes(D(), v)); };
  return {abs.total(),
          square.total(),
          relative.total(),
          cross.total(),
          actual.total(),
          actual_square.total(),
          reference.total(),
          reference_square.total(),
          largest(max_abs),
          largest(max_rel),
          largest(max_ratio),
          above,
          below,
          static_cast<std::int64_t>(x.count) - within,
          relatives};
}

HWY_NOINLINE double squares_about_on(double mean, std::span<const double> values) {
  const Doubles center = hn::Set(D(), mean);
  LaneSum squares;
  for (std::size_t lane = 0; lane < block_lanes; lane += hn::Lanes(D())) {
    Doubles sum = hn::Zero(D());
    for (std::size_t i = lane; i < values.size(); i += block_lanes) {
      const Doubles off = hn::Sub(hn::Load(D(), values.data() + i), center);
      sum = hn::Add(sum, hn::Mul(off, off));
    }
    squares.put(sum, lane);
  }
  return squares.total();
}

}  // namespace HWY_NAMESPACE
}  // namespace assay
HWY_AFTER_NAMESPACE();
#endif
