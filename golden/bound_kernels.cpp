#include "assay/golden/bound_kernels.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

// NEON is what aarch64 always has; SVE's vectors have no fixed size and were not tried.
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "assay/golden/bound_kernels.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace assay {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

// What a whole vector leaves over is done by the same code with One.
using All = hn::ScalableTag<double>;
using One = hn::CappedTag<double, 1>;
template <class D>
using Float = hn::Rebind<float, D>;
template <class D>
using Words = hn::Rebind<std::uint32_t, D>;

// Two vectors: what holds both would have a constructor for no target.
template <class D>
HWY_INLINE void load(D d, const Bound* from, hn::Vec<D>& value, hn::Vec<D>& error) {
  static_assert(sizeof(Bound) == 2 * sizeof(double));
  hn::LoadInterleaved2(d, &from->value, value, error);
}

template <class D>
HWY_INLINE std::size_t largest(D d, const Bound* from, std::size_t i, std::size_t n, LargestOfLine& most) {
  auto value = hn::Zero(d), error = hn::Zero(d);
  auto finite = hn::Eq(value, value);
  const std::size_t begin = i;
  for (; i + hn::Lanes(d) <= n; i += hn::Lanes(d)) {
    auto v = hn::Zero(d), e = hn::Zero(d);
    load(d, from + i, v, e);
    const auto is_number = hn::IsFinite(v), is_known = hn::And(is_number, hn::IsFinite(e));
    finite = hn::And(finite, is_known);
    value = hn::Max(value, hn::IfThenElseZero(is_number, hn::Abs(v)));
    error = hn::Max(error, hn::IfThenElseZero(is_known, e));
  }
  if (i == begin) return i;
  most.value = std::max(most.value, hn::GetLane(hn::MaxOfLanes(d, value)));
  most.error = std::max(most.error, hn::GetLane(hn::MaxOfLanes(d, error)));
  most.is_finite = most.is_finite && hn::AllTrue(d, finite);
  return i;
}
void Largest(const Bound* from, std::size_t n, LargestOfLine& most) {
  largest(One(), from, largest(All(), from, 0, n, most), n, most);
}

// To nearest even, overflow to infinity.
template <class D>
HWY_INLINE hn::Vec<Float<D>> to_float(D d, hn::Vec<D> x) {
#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128
  // There DemoteTo saturates (Highway 1.0.3).
  HWY_ALIGN double wide[8];
  HWY_ALIGN float narrow[8];
  hn::Store(x, d, wide);
  for (std::size_t lane = 0; lane < hn::Lanes(d); ++lane) narrow[lane] = static_cast<float>(wide[lane]);
  return hn::Load(Float<D>(), narrow);
#else
  (void)d;
  return hn::DemoteTo(Float<D>(), x);
#endif
}

template <Share share, class D>
HWY_INLINE hn::Vec<D> share_of(D d, hn::Vec<D> value, hn::Vec<D> error, hn::Vec<D> scale, hn::Vec<D> hidden,
                               hn::Vec<D> others) {
  if constexpr (share == Share::magnitude) return hn::Mul(scale, hn::Abs(value));
  if constexpr (share == Share::value_and_error) return hn::Mul(scale, hn::Add(hn::Abs(value), error));
  if constexpr (share == Share::square) {
    const auto v = hn::Mul(scale, hn::Abs(value));
    return hn::Mul(v, v);
  }
  const auto off = hn::Abs(hn::Sub(value, hn::PromoteTo(d, to_float(d, value))));
  const auto hides = hn::And(hn::Gt(off, hn::Zero(d)), hn::Le(off, hn::Mul(hidden, error)));
  return hn::Mul(scale, hn::IfThenElse(hides, hn::Mul(others, error), error));
}

template <Share share, class D>
HWY_INLINE std::size_t cut(D d, const Bound* from, std::size_t i, std::size_t n, double scale, double hidden,
                           float* to) {
  const Float<D> df;
  const Words<D> du;
  const auto all_scale = hn::Set(d, scale), all_hidden = hn::Set(d, hidden), others = hn::Set(d, 1 - hidden);
  const auto least = hn::Set(df, 0x1p-62F);
  const auto kept = hn::Set(du, ~0xFFFU);
  for (; i + hn::Lanes(d) <= n; i += hn::Lanes(d)) {
    auto value = hn::Zero(d), error = hn::Zero(d);
    load(d, from + i, value, error);
    const auto v = to_float(d, share_of<share>(d, value, error, all_scale, all_hidden, others));
    const auto cut = hn::BitCast(df, hn::And(hn::BitCast(du, v), kept));
    hn::StoreU(hn::IfThenZeroElse(hn::Lt(v, least), cut), df, to + i);
  }
  return i;
}
template <Share share>
void cut_all(const Bound* from, std::size_t n, double scale, double hidden, float* to) {
  cut<share>(One(), from, cut<share>(All(), from, 0, n, scale, hidden, to), n, scale, hidden, to);
}
void Cut(const Bound* from, std::size_t n, Share share, double scale, double hidden, float* to) {
  switch (share) {
    case Share::magnitude:
      return cut_all<Share::magnitude>(from, n, scale, hidden, to);
    case Share::square:
      return cut_all<Share::square>(from, n, scale, hidden, to);
    case Share::error:
      return cut_all<Share::error>(from, n, scale, hidden, to);
    case Share::value_and_error:
      return cut_all<Share::value_and_error>(from, n, scale, hidden, to);
  }
}

// As least_loss, operation by operation.
template <class D>
HWY_INLINE std::size_t settle(D d, const LineOfSums& s, std::size_t i, const LossOfTerms& loss, Bound* to) {
  const auto u = hn::Set(d, loss.unit_roundoff), n = hn::Set(d, loss.terms);
  for (; i + hn::Lanes(d) <= s.count; i += hn::Lanes(d)) {
    const auto value = hn::LoadU(d, s.values + i), squares = hn::LoadU(d, s.squares + i);
    const auto magnitude = hn::Max(hn::Abs(value), hn::Sqrt(squares));
    auto lost = hn::Zero(d);
    if (loss.terms >= 2) {
      lost = hn::Mul(hn::Mul(hn::Sub(n, hn::Set(d, 1)), u), magnitude);
      if (loss.averages_out) {
        const auto mean = hn::Div(value, n), mean_square = hn::Mul(mean, mean);
        const auto variance = hn::Max(hn::Zero(d), hn::Sub(hn::Div(squares, n), mean_square));
        const auto of_mean = hn::Div(hn::Mul(hn::Mul(hn::Mul(mean_square, n), n), n), hn::Set(d, 3));
        const auto of_variance = hn::Div(hn::Mul(hn::Mul(variance, n), n), hn::Set(d, 6));
        lost = hn::Min(lost, hn::Mul(hn::Set(d, loss.of_root), hn::Sqrt(hn::Add(of_mean, of_variance))));
      }
    }
    const auto error = hn::Mul(hn::Set(d, s.of_error),
                               hn::Add(hn::LoadU(d, s.inherited + i), hn::Add(hn::Mul(u, magnitude), lost)));
    if (HWY_LIKELY(hn::AllTrue(d, hn::And(hn::IsFinite(value), hn::IsFinite(error))))) {
      hn::StoreInterleaved2(value, error, d, &to[i].value);
      continue;
    }
    for (std::size_t k = i; k < i + hn::Lanes(d); ++k) {
      const double v = s.values[k];
      const double rounded =
          std::isfinite(v) ? loss.unit_roundoff * std::max(std::abs(v), std::sqrt(s.squares[k])) : 0;
      to[k] = settled(v, s.of_error * (s.inherited[k] +
                                       (rounded + least_loss(s.terms, v, s.squares[k], loss.unit_roundoff))));
    }
  }
  return i;
}
void Settle(const LineOfSums& s, const LossOfTerms& loss, Bound* to) {
  settle(One(), s, settle(All(), s, 0, loss, to), loss, to);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace assay
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace assay {

HWY_EXPORT(Largest);
HWY_EXPORT(Cut);
HWY_EXPORT(Settle);

LargestOfLine largest_of(std::span<const Bound> line) {
  LargestOfLine most;
  HWY_DYNAMIC_DISPATCH(Largest)(line.data(), line.size(), most);
  return most;
}

void cut_line(std::span<const Bound> line, Share share, double scale, double hidden, float* to) {
  HWY_DYNAMIC_DISPATCH(Cut)(line.data(), line.size(), share, scale, hidden, to);
}

void settle_line(const LineOfSums& s, Bound* to) {
  HWY_DYNAMIC_DISPATCH(Settle)(s, loss_of_terms(s.terms, ErrorScope::current().unit_roundoff), to);
}

}  // namespace assay
#endif  // HWY_ONCE
