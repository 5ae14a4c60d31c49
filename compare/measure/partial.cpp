#include "assay/compare/measure/partial.h"
#include "assay/golden/tensor_source.h"

#include <algorithm>
#include <cmath>

namespace assay {
namespace {

void merge_side(Side& into, const Side& from, std::int64_t into_count, std::int64_t from_count) {
  const bool into_empty = into.nan == into_count, from_empty = from.nan == from_count;
  if (into_empty) {
    into.min = from.min;
    into.max = from.max;
  } else if (!from_empty) {
    into.min = std::min(into.min, from.min);
    into.max = std::max(into.max, from.max);
  }
  into.nan += from.nan;
  into.infinite += from.infinite;
  into.zero += from.zero;
  into.subnormal += from.subnormal;
}

// Mean and deviation of one side.
void finish_side(Side& side, const Moments& moments, double n) {
  side.mean = moments.sum.value() / n;
  side.std = std::sqrt(moments.squares / n);
}

}  // namespace

void Moments::merge(double count, const Moments& from, double from_count) {
  if (from_count == 0) return;
  if (count > 0) {
    const double apart = from.sum.value() / from_count - sum.value() / count;
    squares += apart * apart * (count / (count + from_count) * from_count);
  }
  squares += from.squares;
  sum.add(from.sum.value());
}

void move_to(Partial& p, std::int64_t begin) {
  Metrics& m = p.metrics;
  for (std::int64_t* at : {&m.max_abs_at, &m.max_rel_at, &m.max_ulp_at, &m.different_bits_at,
                           &m.special_mismatch_at, &m.worst_at}) {
    if (*at >= 0) *at += begin;
  }
}

void merge_into(Partial& into, const Partial& from) {
  Metrics& m = into.metrics;
  const Metrics& f = from.metrics;
  merge_side(m.actual, f.actual, m.elements, f.elements);
  merge_side(m.reference, f.reference, m.elements, f.elements);
  m.elements += f.elements;
  keep_larger(m.max_abs, m.max_abs_at, f.max_abs, f.max_abs_at);
  keep_larger(m.max_rel, m.max_rel_at, f.max_rel, f.max_rel_at);
  keep_larger(m.max_ulp, m.max_ulp_at, f.max_ulp, f.max_ulp_at);
  keep_larger(m.worst_ratio, m.worst_at, f.worst_ratio, f.worst_at);
  m.ulp_histogram.resize(std::max(m.ulp_histogram.size(), f.ulp_histogram.size()));
  for (std::size_t k = 0; k < f.ulp_histogram.size(); ++k) m.ulp_histogram[k] += f.ulp_histogram[k];
  m.different_bits += f.different_bits;
  if (m.different_bits_at < 0) m.different_bits_at = f.different_bits_at;
  if (m.special_mismatch_at < 0) m.special_mismatch_at = f.special_mismatch_at;
  m.special_mismatch += f.special_mismatch;
  m.overflowed += f.overflowed;
  m.above += f.above;
  m.below += f.below;
  m.over += f.over;
  const auto count = static_cast<double>(into.finite), from_count = static_cast<double>(from.finite);
  into.actual.merge(count, from.actual, from_count);
  into.reference.merge(count, from.reference, from_count);
  into.abs.add(from.abs.value());
  into.square.add(from.square.value());
  into.relative.add(from.relative.value());
  into.cross.add(from.cross.value());
  into.actual_square.add(from.actual_square.value());
  into.reference_square.add(from.reference_square.value());
  into.finite += from.finite;
  into.relatives += from.relatives;
}

void finish(Partial& p) {
  Metrics& m = p.metrics;
  if (p.finite == 0) return;
  const auto n = static_cast<double>(p.finite);
  const double square = p.square.value();
  const double actual_norm = std::sqrt(p.actual_square.value());
  const double reference_norm = std::sqrt(p.reference_square.value());
  m.mean_abs = p.abs.value() / n;
  m.mean_rel = p.relatives == 0 ? 0 : p.relative.value() / static_cast<double>(p.relatives);
  m.rmse = std::sqrt(square / n);
  m.relative_l2 = square == 0 ? 0 : std::sqrt(square) / reference_norm;
  // ||a|| - ||r||, without their cancellation: ||a||^2 - ||r||^2 = sum d (a + r) = sum d (2 r + d).
  const double norms = (2 * p.cross.value() + square) / (actual_norm + reference_norm);
  const double product = actual_norm * reference_norm;
  // (||d||^2 - (||a|| - ||r||)^2) / 2 is what a.r lacks of ||a|| ||r||; where ||a|| is far above ||r||, all
  // of it is lost against ||d||^2, but not what is summed of a.r itself.
  const double lack = actual_norm > 2 * reference_norm
                          ? product - (p.cross.value() + reference_norm * reference_norm)
                          : (square - norms * norms) / 2;
  if (square != 0) m.one_minus_cosine = product == 0 ? 1 : std::clamp(lack / product, 0.0, 2.0);
  finish_side(m.actual, p.actual, n);
  finish_side(m.reference, p.reference, n);
}

bool squares_left_the_range(const Partial& p) {
  constexpr double smallest = 0x1p-900;  // squares down to 2^-1022 reach it with all their digits
  const Metrics& m = p.metrics;
  const auto lost = [](const CompensatedSum& sum, bool any) {
    return !std::isfinite(sum.value()) || (any && sum.value() < smallest);
  };
  const auto any = [&](const Side& s) { return s.zero + s.nan + s.infinite < m.elements; };
  return p.finite > 0 && (lost(p.square, m.max_abs > 0) || lost(p.actual_square, any(m.actual)) ||
                          lost(p.reference_square, any(m.reference)));
}

namespace {

// use(a, r) for each pair that is finite on both sides.
template <class Use>
void for_each_pair(const TensorSource& actual, const TensorSource& reference, Use use) {
  actual.for_each_window([&](const Tensor& window, std::int64_t begin) {
    const std::vector<double> a = window.values(), r = reference.window(begin, window.size()).values();
    for (std::size_t i = 0; i < a.size(); ++i) {
      if (std::isfinite(a[i]) && std::isfinite(r[i])) use(a[i], r[i]);
    }
  });
}

// Of a side's values: scaled by it, the largest is 1 to 2.
int exponent_of(double largest) {
  return largest > 0 ? std::ilogb(largest) : 0;
}

struct Exponents {
  int actual, reference;
};
Exponents exponents_of(const TensorSource& actual, const TensorSource& reference) {
  double a_largest = 0, r_largest = 0;
  for_each_pair(actual, reference, [&](double a, double r) {
    a_largest = std::max(a_largest, std::abs(a));
    r_largest = std::max(r_largest, std::abs(r));
  });
  return {exponent_of(a_largest), exponent_of(r_largest)};
}

}  // namespace

bool actual_is_far_below(const Partial& p) {
  const double a = p.actual_square.value(), r = p.reference_square.value();
  return p.finite > 0 && a > 0 && a < r / 4;
}

double one_minus_cosine(const TensorSource& actual, const TensorSource& reference) {
  const Exponents scale = exponents_of(actual, reference);
  CompensatedSum product, actual_square, reference_square;
  for_each_pair(actual, reference, [&](double a, double r) {
    a = std::ldexp(a, -scale.actual);
    r = std::ldexp(r, -scale.reference);
    product.add(a * r);
    actual_square.add(a * a);
    reference_square.add(r * r);
  });
  const double norms = std::sqrt(actual_square.value()) * std::sqrt(reference_square.value());
  return norms == 0 ? 1 : std::clamp(1 - product.value() / norms, 0.0, 2.0);
}

// One exponent for both sides, one for their difference, which may be far below them, and for what is said of
// a side alone its own.
void finish_scaled(Partial& p, const TensorSource& actual, const TensorSource& reference) {
  const Exponents own = exponents_of(actual, reference);
  const int values = std::max(own.actual, own.reference);
  const int errors =
      p.metrics.max_abs > 0 && std::isfinite(p.metrics.max_abs) ? std::ilogb(p.metrics.max_abs) : values;
  p.abs = p.square = p.cross = p.actual_square = p.reference_square = {};
  p.actual = p.reference = {};
  CompensatedSum square_of_errors, own_reference_square;
  for_each_pair(actual, reference, [&](double a, double r) {
    const double own_r = std::ldexp(r, -own.reference);
    p.actual.sum.add(std::ldexp(a, -own.actual));
    p.reference.sum.add(own_r);
    own_reference_square.add(own_r * own_r);
    a = std::ldexp(a, -values);
    r = std::ldexp(r, -values);
    const double e = std::ldexp(a - r, values - errors);
    p.actual_square.add(a * a);
    p.reference_square.add(r * r);
    p.square.add((a - r) * (a - r));
    p.cross.add((a - r) * r);
    p.abs.add(std::abs(a - r));
    square_of_errors.add(e * e);
  });
  const auto n = static_cast<double>(p.finite);
  const double mean = p.actual.sum.value() / n, reference_mean = p.reference.sum.value() / n;
  for_each_pair(actual, reference, [&](double a, double r) {
    const double off = std::ldexp(a, -own.actual) - mean,
                 reference_off = std::ldexp(r, -own.reference) - reference_mean;
    p.actual.squares += off * off;
    p.reference.squares += reference_off * reference_off;
  });
  finish(p);
  Metrics& m = p.metrics;
  m.mean_abs = std::ldexp(m.mean_abs, values);
  const auto unscale = [](Side& side, int exponent) {
    side.mean = std::ldexp(side.mean, exponent);
    side.std = std::ldexp(side.std, exponent);
  };
  unscale(m.actual, own.actual);
  unscale(m.reference, own.reference);
  const double root = std::sqrt(square_of_errors.value());
  m.rmse = std::ldexp(root / std::sqrt(n), errors);
  m.relative_l2 =
      root == 0 ? 0 : std::ldexp(root / std::sqrt(own_reference_square.value()), errors - own.reference);
  if (root != 0) m.one_minus_cosine = one_minus_cosine(actual, reference);
}

}  // namespace assay
