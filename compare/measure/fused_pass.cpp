#include "assay/compare/measure/fused_pass.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "assay/compare/measure/locate.h"

namespace assay {
namespace {

constexpr float float_infinity = std::numeric_limits<float>::infinity();
// Filters in float32 are off by a few 2^-24: they are set this much too low, or too high.
constexpr double slack = 0x1p-20;

// Limits in float32 must neither leave its range nor get lost in it.
bool in_range(double tolerance) {
  return tolerance == 0 || (tolerance >= 0x1p-60 && tolerance <= 0x1p60);
}

// A sum of float32 squares in float64: below, some have lost digits to underflow, which begins at 2^-126.
bool kept_digits(double square) {
  return square >= 0x1p-110 && square < infinity;
}
bool kept_digits(const FusedSide& side, float shift, std::size_t count) {
  if (kept_digits(side.squares)) return true;
  const auto others = static_cast<std::int64_t>(count) - side.nan - side.infinite;
  return side.squares == 0 &&
         ((side.min == shift && side.max == shift) || (shift == 0 && side.zero == others));
}

// Whether the mean is too far from the shift for the squares about the one to give those about the other.
bool cancels(const FusedSide& side, double n) {
  return side.sum * side.sum / n > 8. / 9 * side.squares;
}

// |a - r| < |r| / 2 (Sterbenz 1974); where r is 0, it is a.
bool differences_are_exact(const FusedResult& r) {
  return r.max_rel < 0.48f;
}

// What the elements at the beginning of a window have in common, if that is more than what they differ by.
float shift_of(DType dtype, std::span<const std::byte> bytes) {
  constexpr std::size_t sample = 32;
  double values[sample];
  decode(dtype, bytes.first(sample * size_of(dtype)), values);
  double sum = 0, square = 0;
  for (const double v : values) sum += v;
  const double mean = sum / sample;
  for (const double v : values) square += (v - mean) * (v - mean);
  const bool apart = mean * mean * sample > 4 * square && std::abs(mean) <= 0x1p100;
  return apart ? static_cast<float>(mean) : 0;
}

}  // namespace

bool FusedPass::takes(DType actual, DType reference, const Allowed& allowed) {
  return is_fused(actual, reference) && allowed.bound.empty() && in_range(allowed.atol) &&
         in_range(allowed.rtol);
}

FusedPass::FusedPass(DType actual, DType reference, const Allowed& allowed)
    : actual_(actual), reference_(reference), atol_(allowed.atol), rtol_(allowed.rtol) {}

Partial FusedPass::run(std::span<const std::byte> actual, std::span<const std::byte> reference,
                       std::int64_t begin) {
  partial_ = {};
  histogram_.fill(0);
  Side &a = partial_.metrics.actual, &r = partial_.metrics.reference;
  a.min = r.min = infinity;
  a.max = r.max = -infinity;
  const std::size_t count = actual.size() / size_of(actual_);
  FusedBlock b{};
  b.atol = atol_;
  b.rtol = rtol_;
  b.actual_shift = shift_of(actual_, actual);
  b.reference_shift = shift_of(reference_, reference);
  for (std::size_t at = 0; at < count; at += fused_block) {
    b.actual = actual.data() + at * size_of(actual_);
    b.reference = reference.data() + at * size_of(reference_);
    b.count = std::min(fused_block, count - at);
    begin_ = begin + static_cast<std::int64_t>(at);
    block(b);
  }
  partial_.metrics.elements = static_cast<std::int64_t>(count);
  for (Side* side : {&a, &r}) {
    if (side->nan == partial_.metrics.elements) side->min = side->max = 0;
  }
  const auto last =
      std::find_if(histogram_.rbegin(), histogram_.rend(), [](std::int64_t n) { return n != 0; });
  partial_.metrics.ulp_histogram.assign(histogram_.begin(), last.base());
  return std::move(partial_);
}

void FusedPass::block(FusedBlock& b) {
  if (actual_ == reference_ && std::memcmp(b.actual, b.reference, b.count * size_of(actual_)) == 0) {
    const FusedSide side = fused_side(actual_, b);
    const auto n = static_cast<double>(static_cast<std::int64_t>(b.count) - side.nan - side.infinite);
    if (n == 0 || (kept_digits(side, b.actual_shift, b.count) && !cancels(side, n)))
      return equal_block(b, side);
  }
  set_filters(b);
  FusedResult r = in_float32(b);
  const double n = static_cast<double>(b.count) - static_cast<double>(r.special);
  const auto fits = [&] {
    return std::isfinite(r.cross) && kept_digits(r.actual, b.actual_shift, b.count) &&
           kept_digits(r.reference, b.reference_shift, b.count) &&
           (kept_digits(r.square) || r.max_abs == 0) && (kept_digits(r.relative) || r.max_rel == 0);
  };
  if (n > 0 && fits() && (cancels(r.actual, n) || cancels(r.reference, n))) {
    if (r.actual.squares > 0) b.actual_shift += static_cast<float>(r.actual.sum / n);
    if (r.reference.squares > 0) b.reference_shift += static_cast<float>(r.reference.sum / n);
    r = in_float32(b);
  }
  ExactErrors errors{};  // none that beats those before
  if (n > 0 && !fits()) {
    FusedBlock wide = b;
    widen(r, errors, wide);
    return add(wide, r, errors);
  }
  if (n > 0) errors = exact_errors(b, r);
  add(b, r, errors);
}

// Where only the ratio to the allowed error is not decided, of those steps alone that may hold a new one: few
// elements of 16 bits equal the largest by chance, but most blocks have one.
ExactErrors FusedPass::exact_errors(FusedBlock b, const FusedResult& r) const {
  // An exact difference has to pass the floor; one that was rounded may have been larger where it equals it.
  if (abs_.any && differences_are_exact(r) && static_cast<double>(b.abs_floor) <= abs_.value)
    b.abs_floor = std::nextafter(b.abs_floor, float_infinity);
  if (!ratio_.any || !sizes_are_decided(r)) return fused_errors(actual_, reference_, b);
  ExactErrors errors{};
  FusedBlock step = b;
  step.count = fused_step;
  for (std::size_t at = 0; at < b.count; at += fused_step) {
    if (!(r.excess[at / fused_step] > b.excess_atol)) continue;
    step.actual = b.actual + at * size_of(actual_);
    step.reference = b.reference + at * size_of(reference_);
    const ExactErrors own = fused_errors(actual_, reference_, step);
    errors.max_abs = std::max(errors.max_abs, own.max_abs);
    errors.max_rel = std::max(errors.max_rel, own.max_rel);
    errors.worst_ratio = std::max(errors.worst_ratio, own.worst_ratio);
    errors.over += own.over;
  }
  return errors;
}

// Which kernel gives the sums depends on nothing but the block: not on those before, which another thread may
// have had. They say only which to try first.
FusedResult FusedPass::in_float32(const FusedBlock& b) {
  if (regular_) {
    const FusedResult r = fused_regular(actual_, reference_, b);
    if (r.regular) return r;
  }
  const FusedResult r = fused_any(actual_, reference_, b);
  regular_ = r.regular;
  return regular_ ? fused_regular(actual_, reference_, b) : r;
}

void FusedPass::set_filters(FusedBlock& b) {
  const auto scaled = [&](double factor, float& atol, float& rtol) {
    atol = static_cast<float>(atol_ * factor);
    rtol = static_cast<float>(rtol_ * factor);
  };
  scaled(1 - slack, b.low_atol, b.low_rtol);
  scaled(1 + slack, b.high_atol, b.high_rtol);
  scaled(std::min(1.0, ratio_.value) * (1 - slack), b.excess_atol, b.excess_rtol);
  scaled(ratio_.value * (1 - slack), b.worst_atol, b.worst_rtol);
  b.abs_floor = static_cast<float>(abs_.value);
  b.rel_floor = static_cast<float>(rel_.value * (1 - slack));
  if (atol_ == 0 && rtol_ > 0) b.abs_floor = 0;
  if (!(ratio_.value < 0x1p60) || (atol_ == 0 && rtol_ == 0)) {
    b.worst_atol = float_infinity;
    b.worst_rtol = 0;
  }
  if (atol_ == 0 && rtol_ == 0) b.excess_atol = b.worst_atol;
}

// Whether no error of the block is larger than those that are known. Where errors are a few ulps, many blocks
// only equal them, and must not be computed again for that.
bool FusedPass::sizes_are_decided(const FusedResult& r) const {
  if (atol_ == 0 && rtol_ > 0) return false;  // limits of small elements leave the range of float32
  if (!abs_.any || (!rel_.any && r.relatives > 0)) return false;
  if (!differences_are_exact(r)) {
    return (r.max_abs == 0 || r.max_abs < static_cast<float>(abs_.value)) &&
           (r.max_rel == 0 || r.max_rel < static_cast<float>(rel_.value * (1 - slack)));
  }
  if (static_cast<double>(r.max_abs) > abs_.value) return false;
  // Its quotients are rounded once: a larger one rounds no lower than the float32 below the known one's.
  if (r.max_rel == 0 || r.max_rel < static_cast<float>(std::nextafter(rel_.value, 0.0))) return true;
  // Quotients of significands of 12 and 11 bits are equal if they are in float32, those of bfloat16 as well.
  return size_of(actual_) == 2 && size_of(reference_) == 2 && r.max_rel < 0.47f &&
         r.max_rel == static_cast<float>(rel_.value);
}

void FusedPass::widen(FusedResult& r, ExactErrors& errors, FusedBlock& b) const {
  const double n = static_cast<double>(b.count) - static_cast<double>(r.special);
  const auto take = [&] {
    const WideResult w = fused_wide(actual_, reference_, b);
    r.actual.sum = w.actual_sum;
    r.actual.squares = w.actual_squares;
    r.reference.sum = w.reference_sum;
    r.reference.squares = w.reference_squares;
    r.abs = w.abs;
    r.square = w.square;
    r.relative = w.relative;
    r.cross = w.cross;
    errors = w.errors;
  };
  take();
  if (!cancels(r.actual, n) && !cancels(r.reference, n)) return;
  b.actual_shift += static_cast<float>(r.actual.sum / n);
  b.reference_shift += static_cast<float>(r.reference.sum / n);
  take();
}

void FusedPass::add_side(Side& to, Moments& moments, CompensatedSum& square, const FusedSide& side,
                         double shift, double n) const {
  to.nan += side.nan;
  to.infinite += side.infinite;
  to.zero += side.zero;
  to.subnormal += side.subnormal;
  to.min = std::min(to.min, static_cast<double>(side.min));
  to.max = std::max(to.max, static_cast<double>(side.max));
  if (n == 0) return;
  Moments own;
  own.sum.add(n * shift);
  own.sum.add(side.sum);
  own.squares = std::max(0.0, side.squares - side.sum * side.sum / n);
  moments.merge(static_cast<double>(partial_.finite), own, n);
  square.add(own.squares + own.sum.value() * own.sum.value() / n);
}

void FusedPass::equal_block(const FusedBlock& b, const FusedSide& side) {
  FusedResult r{};
  r.actual = r.reference = side;
  r.special = side.nan + side.infinite;
  r.relatives = static_cast<std::int64_t>(b.count) - r.special - side.zero;
  r.histogram[0] = static_cast<std::int64_t>(b.count);
  FusedBlock same = b;
  same.reference_shift = b.actual_shift;
  add(same, r, {});
}

template <class V>
void FusedPass::keep(Floor& floor, V value, V& best, std::int64_t& best_at) const {
  if (!floor.beaten_by(static_cast<double>(value))) return;
  floor = {static_cast<double>(value), true};
  best = value;
  best_at = begin_;
}

void FusedPass::add(const FusedBlock& b, const FusedResult& r, ExactErrors errors) {
  Partial& p = partial_;
  Metrics& m = p.metrics;
  const auto count = static_cast<std::int64_t>(b.count), finite = count - r.special;
  const auto n = static_cast<double>(finite);
  add_side(m.actual, p.actual, p.actual_square, r.actual, static_cast<double>(b.actual_shift), n);
  add_side(m.reference, p.reference, p.reference_square, r.reference, static_cast<double>(b.reference_shift),
           n);
  p.finite += finite;
  p.abs.add(r.abs);
  p.square.add(r.square);
  p.relative.add(r.relative);
  p.cross.add(r.cross);
  p.relatives += r.relatives;
  m.above += r.above;
  m.below += r.below;
  m.different_bits += r.different;
  if (m.different_bits_at < 0 && r.different > 0) m.different_bits_at = begin_;
  for (std::size_t k = 0; k < histogram_.size(); ++k) histogram_[k] += r.histogram[k];
  if (atol_ == 0 && rtol_ == 0) {
    errors.over = r.above + r.below;
    errors.worst_ratio = errors.over > 0 ? infinity : 0;
  }
  if (r.mismatch) judge_specials(b, errors);
  m.over += errors.over;
  keep(ratio_, errors.worst_ratio, m.worst_ratio, m.worst_at);
  if (finite == 0) return;
  keep(abs_, errors.max_abs, m.max_abs, m.max_abs_at);
  if (r.relatives > 0) keep(rel_, errors.max_rel, m.max_rel, m.max_rel_at);
  keep(ulp_, r.max_ulp, m.max_ulp, m.max_ulp_at);
}

void FusedPass::judge_specials(const FusedBlock& b, ExactErrors& errors) {
  const PairValues v(actual_, reference_, b.actual, b.reference, b.count);
  Metrics& m = partial_.metrics;
  for (std::size_t i = 0; i < b.count; ++i) {
    m.overflowed += v.overflowed(i) ? 1 : 0;
    if (!v.mismatched(i)) continue;
    if (m.special_mismatch++ == 0) m.special_mismatch_at = begin_ + static_cast<std::int64_t>(i);
    --histogram_[0];
    ++errors.over;
    errors.worst_ratio = infinity;
  }
}

}  // namespace assay
