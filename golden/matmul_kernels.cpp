#include "assay/golden/matmul_kernels.h"

#include <algorithm>
#include <cmath>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "assay/golden/matmul_kernels.cpp"
#include <hwy/foreach_target.h>  // compiles this file once for each instruction set
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace assay {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// Loops are written for a tag of float64 lanes; the float32 beside them are half as wide. What a whole vector
// leaves over is done by the same code with One.
using All = hn::ScalableTag<double>;
using One = hn::CappedTag<double, 1>;
template <class D>
using Float = hn::Rebind<float, D>;
template <class D>
using Bits = hn::Rebind<std::uint32_t, D>;

// x less what remains of it when its lowest set bit is cleared. A power of two has only the hidden bit.
// Minus 1, so that zero becomes the largest of all.
template <class D>
HWY_INLINE hn::Vec<Bits<D>> lowest_bit(D, hn::Vec<Float<D>> x) {
  const Float<D> df;
  const Bits<D> du;
  const auto magnitude = hn::Abs(x);
  const auto bits = hn::BitCast(du, magnitude);
  const auto one = hn::Set(du, 1u);
  const auto cleared = hn::BitCast(df, hn::And(bits, hn::Sub(bits, one)));
  const auto power = hn::Eq(hn::And(bits, hn::Set(du, 0x7fffffu)), hn::Zero(du));
  const auto lowest = hn::IfThenElse(power, bits, hn::BitCast(du, hn::Sub(magnitude, cleared)));
  return hn::Sub(lowest, one);
}

template <class D>
HWY_INLINE std::size_t widen_row(D d, const float* in, std::size_t j, std::size_t n, double* out,
                                 double& square, std::uint32_t& lowest) {
  const Float<D> df;
  const Bits<D> du;
  auto sum = hn::Zero(d);
  auto low = hn::Set(du, no_bit_set);
  for (; j + hn::Lanes(d) <= n; j += hn::Lanes(d)) {
    const auto x = hn::LoadU(df, in + j);
    const auto wide = hn::PromoteTo(d, x);
    hn::StoreU(wide, d, out + j);
    sum = hn::MulAdd(wide, wide, sum);
    low = hn::Min(low, lowest_bit(d, x));
  }
  square += hn::GetLane(hn::SumOfLanes(d, sum));
  lowest = std::min(lowest, hn::GetLane(hn::MinOfLanes(du, low)));
  return j;
}

void WidenRows(const float* in, std::size_t in_stride, std::size_t rows, std::size_t columns, double* out,
               std::size_t out_stride, const LineSums& sums) {
  for (std::size_t i = 0; i < rows; ++i) {
    const float* from = in + i * in_stride;
    double* to = out + i * out_stride;
    if (i + 2 < rows) {  // rows are short and far apart, which hardware does not foresee
      for (std::size_t j = 0; j < columns; j += 16) __builtin_prefetch(from + 2 * in_stride + j);
      for (std::size_t j = 0; j < columns; j += 8) __builtin_prefetch(to + 2 * out_stride + j, 1);
    }
    const std::size_t j = widen_row(All(), from, 0, columns, to, sums.squares[i], sums.lowest[i]);
    widen_row(One(), from, j, columns, to, sums.squares[i], sums.lowest[i]);
  }
}

template <class D>
HWY_INLINE std::size_t widen_across(D d, const float* in, std::size_t j, std::size_t n, double* out,
                                    const LineSums& sums) {
  const Float<D> df;
  const Bits<D> du;
  for (; j + hn::Lanes(d) <= n; j += hn::Lanes(d)) {
    const auto x = hn::LoadU(df, in + j);
    const auto wide = hn::PromoteTo(d, x);
    hn::StoreU(wide, d, out + j);
    hn::StoreU(hn::MulAdd(wide, wide, hn::LoadU(d, sums.squares + j)), d, sums.squares + j);
    hn::StoreU(hn::Min(lowest_bit(d, x), hn::LoadU(du, sums.lowest + j)), du, sums.lowest + j);
  }
  return j;
}

void WidenColumns(const float* in, std::size_t in_stride, std::size_t rows, std::size_t columns, double* out,
                  std::size_t out_stride, const LineSums& sums) {
  for (std::size_t i = 0; i < rows; ++i) {
    const float* from = in + i * in_stride;
    double* to = out + i * out_stride;
    widen_across(One(), from, widen_across(All(), from, 0, columns, to, sums), columns, to, sums);
  }
}

// To nearest even, overflow to infinity.
template <class D>
HWY_INLINE hn::Vec<Float<D>> to_float(D d, hn::Vec<D> x) {
#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128
  // There DemoteTo saturates (Highway 1.0.3).
  HWY_ALIGN double wide[max_lanes];
  HWY_ALIGN float narrow[max_lanes];
  hn::Store(x, d, wide);
  for (std::size_t lane = 0; lane < hn::Lanes(d); ++lane) narrow[lane] = static_cast<float>(wide[lane]);
  return hn::Load(Float<D>(), narrow);
#else
  (void)d;
  return hn::DemoteTo(Float<D>(), x);
#endif
}

template <class D>
HWY_INLINE std::size_t round_some(D d, const double* c, std::size_t j, std::size_t n, double error,
                                  const double* norms, double limit, const double* units, float* y,
                                  std::uint32_t* doubtful, RowCounts& counts) {
  const Float<D> df;
  const Bits<D> du;
  const auto row_error = hn::Set(d, error), row_limit = hn::Set(d, limit);
  for (; j + hn::Lanes(d) <= n; j += hn::Lanes(d)) {
    const auto exact = hn::Le(hn::LoadU(d, units + j), row_limit);
    const auto e = hn::IfThenZeroElse(exact, hn::Mul(row_error, hn::LoadU(d, norms + j)));
    const auto value = hn::Add(hn::LoadU(d, c + j), hn::Zero(d));  // -0 becomes +0
    const auto low = to_float(d, hn::Sub(value, e));
    const auto high = to_float(d, hn::Add(value, e));
    hn::StoreU(low, df, y + j);
    // The first comparison refuses NaN, the second one zeros of different sign.
    const auto sure =
        hn::And(hn::RebindMask(du, hn::Eq(low, high)), hn::Eq(hn::BitCast(du, low), hn::BitCast(du, high)));
    counts.exact += hn::CountTrue(d, exact);
    if (HWY_LIKELY(hn::AllTrue(du, sure))) continue;
    HWY_ALIGN std::uint32_t flags[max_lanes];
    hn::Store(hn::VecFromMask(du, sure), du, flags);
    for (std::size_t lane = 0; lane < hn::Lanes(d); ++lane) {
      doubtful[counts.doubtful] = static_cast<std::uint32_t>(j + lane);
      counts.doubtful += flags[lane] == 0 ? 1 : 0;
    }
  }
  return j;
}

RowCounts RoundRow(const double* c, std::size_t n, double error, const double* norms, double limit,
                   const double* units, float* y, std::uint32_t* doubtful) {
  RowCounts counts = {0, 0};
  const std::size_t j = round_some(All(), c, 0, n, error, norms, limit, units, y, doubtful, counts);
  round_some(One(), c, j, n, error, norms, limit, units, y, doubtful, counts);
  return counts;
}

// D. E. Knuth, The Art of Computer Programming 2, 4.2.2, theorem B: sum + its error are exactly x + y.
HWY_INLINE double two_sum(double x, double y, double& error) {
  const double sum = x + y;
  const double y_part = sum - x;
  error = (x - (sum - y_part)) + (y - y_part);
  return sum;
}

// Each lane's sum, and exactly what its additions lost: sums stay multiples of the anchor's last bit, so
// next - sum is exact, and so is the product (48 bits) less that. With or without FMA.
template <class D>
HWY_INLINE std::size_t add_products(D d, const float* a, const float* b, std::size_t k, std::size_t n,
                                    double anchor, DoubleDoubleDot& dot) {
  const Float<D> df;
  auto sum = hn::Set(d, anchor), correction = hn::Zero(d);
  for (; k + hn::Lanes(d) <= n; k += hn::Lanes(d)) {
    const auto x = hn::PromoteTo(d, hn::LoadU(df, a + k)), y = hn::PromoteTo(d, hn::LoadU(df, b + k));
    const auto next = hn::MulAdd(x, y, sum);
    correction = hn::Add(correction, hn::MulSub(x, y, hn::Sub(next, sum)));
    sum = next;
  }
  HWY_ALIGN double sums[max_lanes];
  hn::Store(hn::Sub(sum, hn::Set(d, anchor)), d, sums);
  for (std::size_t lane = 0; lane < hn::Lanes(d); ++lane) {
    double error = 0;
    dot.sum = two_sum(dot.sum, sums[lane], error);
    dot.correction += error;
  }
  dot.correction += hn::GetLane(hn::SumOfLanes(d, correction));
  return k;
}

void AddDot(const float* a, const float* b, std::size_t n, double anchor, DoubleDoubleDot& dot) {
  const std::size_t k = add_products(All(), a, b, 0, n, anchor, dot);
  add_products(One(), a, b, k, n, anchor, dot);
}

}  // namespace HWY_NAMESPACE
}  // namespace assay
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace assay {

HWY_EXPORT(WidenRows);
HWY_EXPORT(WidenColumns);
HWY_EXPORT(RoundRow);
HWY_EXPORT(AddDot);

void widen_rows(const float* in, std::size_t in_stride, std::size_t rows, std::size_t columns, double* out,
                std::size_t out_stride, const LineSums& sums) {
  HWY_DYNAMIC_DISPATCH(WidenRows)(in, in_stride, rows, columns, out, out_stride, sums);
}

void widen_columns(const float* in, std::size_t in_stride, std::size_t rows, std::size_t columns, double* out,
                   std::size_t out_stride, const LineSums& sums) {
  HWY_DYNAMIC_DISPATCH(WidenColumns)(in, in_stride, rows, columns, out, out_stride, sums);
}

RowCounts round_row(const double* c, std::size_t n, double error, const double* norms, double limit,
                    const double* units, float* y, std::uint32_t* doubtful) {
  return HWY_DYNAMIC_DISPATCH(RoundRow)(c, n, error, norms, limit, units, y, doubtful);
}

void add_dot(const float* a, const float* b, std::size_t n, double anchor, DoubleDoubleDot& dot) {
  HWY_DYNAMIC_DISPATCH(AddDot)(a, b, n, anchor, dot);
}

}  // namespace assay
#endif
