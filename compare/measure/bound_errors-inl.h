// What a bound of each element tells of a block in float64. Included once for each target.
#if defined(ASSAY_COMPARE_BOUND_ERRORS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef ASSAY_COMPARE_BOUND_ERRORS_INL_H
#undef ASSAY_COMPARE_BOUND_ERRORS_INL_H
#else
#define ASSAY_COMPARE_BOUND_ERRORS_INL_H
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <array>

#include "assay/compare/measure/block_errors-inl.h"
#include "assay/compare/measure/block_kernels.h"

HWY_BEFORE_NAMESPACE();
namespace assay {
namespace HWY_NAMESPACE {
namespace {

// f(at) for each vector of `size` elements that is whole; the number of elements in them.
template <class F>
HWY_INLINE std::size_t each_vector(std::size_t size, F f) {
  const std::size_t whole = size / hn::Lanes(D()) * hn::Lanes(D());
  for (std::size_t i = 0; i < whole; i += hn::Lanes(D())) f(i);
  return whole;
}

// The elements behind the last whole vector; the rest of the lanes has the first of them.
HWY_INLINE Doubles rest_of(std::span<const double> values, std::size_t whole) {
  alignas(64) std::array<double, block_lanes> lanes;
  lanes.fill(values[whole]);
  std::copy(values.begin() + static_cast<std::ptrdiff_t>(whole), values.end(), lanes.begin());
  return hn::Load(D(), lanes.data());
}

struct Weights {
  Doubles square, product;
  hn::Mask<D> finite;
};

HWY_INLINE Weights weigh(Doubles a, Doubles g, Doubles d, Doubles b) {
  const Doubles infinite = hn::Set(D(), infinity);
  const auto counts = hn::And(hn::Gt(b, hn::Zero(D())), hn::Lt(b, infinite));
  const Doubles share = hn::Div(d, b);
  const auto finite = hn::And(hn::And(hn::Lt(hn::Abs(a), infinite), hn::Lt(hn::Abs(g), infinite)),
                              hn::Lt(hn::Abs(d), infinite));
  return {hn::IfThenElseZero(counts, hn::Mul(share, share)),
          hn::IfThenElseZero(counts, hn::Mul(hn::Div(hn::Sub(a, g), b), share)), finite};
}

struct Sides {
  hn::Mask<D> above, nonzero, unbounded;
};

HWY_INLINE Sides sides(Doubles a, Doubles g, Doubles b) {
  const Doubles infinite = hn::Set(D(), infinity), size = hn::Abs(g);
  const auto finite = hn::Lt(size, infinite);
  return {hn::AndNot(hn::Le(size, b), finite), hn::And(finite, hn::Ne(size, hn::Zero(D()))),
          hn::And(hn::And(finite, hn::Eq(hn::Abs(b), infinite)), hn::Ne(a, g))};
}

HWY_INLINE hn::Mask<D> inside(Doubles v, Doubles least, Doubles low, Doubles high) {
  return hn::And(hn::Ge(hn::Abs(v), least), hn::And(hn::Ge(v, low), hn::Le(v, high)));
}

}  // namespace

HWY_NOINLINE bool weigh_errors_on(std::span<const double> actual, std::span<const double> golden,
                                  std::span<const double> direction, std::span<const double> allowed,
                                  double* squares, double* products) {
  auto finite = hn::FirstN(D(), hn::Lanes(D()));
  const auto at = [](std::span<const double> x, std::size_t i)
                      HWY_ATTR { return hn::LoadU(D(), x.data() + i); };
  const std::size_t whole = each_vector(actual.size(), [&](std::size_t i) HWY_ATTR {
    const Weights w = weigh(at(actual, i), at(golden, i), at(direction, i), at(allowed, i));
    hn::StoreU(w.square, D(), squares + i);
    hn::StoreU(w.product, D(), products + i);
    finite = hn::And(finite, w.finite);
  });
  if (whole < actual.size()) {
    const Weights w = weigh(rest_of(actual, whole), rest_of(golden, whole), rest_of(direction, whole),
                            rest_of(allowed, whole));
    alignas(64) std::array<double, block_lanes> lanes;
    hn::Store(w.square, D(), lanes.data());
    std::copy_n(lanes.data(), actual.size() - whole, squares + whole);
    hn::Store(w.product, D(), lanes.data());
    std::copy_n(lanes.data(), actual.size() - whole, products + whole);
    finite = hn::And(finite, w.finite);
  }
  return hn::AllTrue(D(), finite);
}

HWY_NOINLINE BoundSides sides_of_bound_on(std::span<const double> actual, std::span<const double> golden,
                                          std::span<const double> bound) {
  const auto none = hn::FirstN(D(), 0);
  Sides any = {none, none, none};
  const auto add = [&](const Sides& s) HWY_ATTR {
    any = {hn::Or(any.above, s.above), hn::Or(any.nonzero, s.nonzero), hn::Or(any.unbounded, s.unbounded)};
  };
  const auto at = [](std::span<const double> x, std::size_t i)
                      HWY_ATTR { return hn::LoadU(D(), x.data() + i); };
  const std::size_t whole = each_vector(
      golden.size(), [&](std::size_t i) HWY_ATTR { add(sides(at(actual, i), at(golden, i), at(bound, i))); });
  if (whole < golden.size())
    add(sides(rest_of(actual, whole), rest_of(golden, whole), rest_of(bound, whole)));
  return {!hn::AllFalse(D(), any.above), !hn::AllFalse(D(), any.nonzero), !hn::AllFalse(D(), any.unbounded)};
}

HWY_NOINLINE std::int64_t count_inside_on(std::span<const double> values, double least, double low,
                                          double high) {
  const Doubles l = hn::Set(D(), least), from = hn::Set(D(), low), to = hn::Set(D(), high);
  std::int64_t count = 0;
  const std::size_t whole = each_vector(values.size(), [&](std::size_t i) HWY_ATTR {
    count += count_true(inside(hn::LoadU(D(), values.data() + i), l, from, to));
  });
  for (std::size_t i = whole; i < values.size(); ++i)
    count += std::abs(values[i]) >= least && values[i] >= low && values[i] <= high ? 1 : 0;
  return count;
}

}  // namespace HWY_NAMESPACE
}  // namespace assay
HWY_AFTER_NAMESPACE();
#endif
