#include "assay/compare/measure/block.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "assay/compare/measure/measure.h"
#include "assay/compare/measure/ordinals.h"
#include "assay/compare/measure/overflow.h"

namespace assay {
namespace {

// Whether float64 holds every value of an integer dtype, and every difference of two.
bool fits_float64(DType d) {
  return size_of(d) < sizeof(std::int64_t);
}

// Of a side without a number, both are 0. -0 becomes 0: which zero comes first is no matter of the elements.
void finish_range(Side& side, std::int64_t elements) {
  const bool any = side.nan < elements;
  side.min = any ? side.min + 0 : 0;
  side.max = any ? side.max + 0 : 0;
}

// Asks for what the next block reads while this one is computed.
void prefetch(std::span<const std::byte> bytes) {
  constexpr std::size_t cache_line = 64;
  for (std::size_t at = 0; at < bytes.size(); at += cache_line) __builtin_prefetch(&bytes[at], 0, 2);
}

}  // namespace

BlockPass::BlockPass(DType actual, DType reference, const Allowed& allowed)
    : actual_(actual), reference_(reference), allowed_(allowed), unit_(coarser(actual, reference)) {}

Partial BlockPass::run(std::span<const std::byte> actual, std::span<const std::byte> reference,
                       std::int64_t begin) {
  all_ = {};
  for (Histogram& histogram : histograms_) histogram.fill(0);
  Metrics& m = all_.metrics;
  m.actual.min = m.reference.min = infinity;
  m.actual.max = m.reference.max = -infinity;
  const std::size_t size = actual.size() / size_of(actual_);
  for (std::size_t at = 0; at < size; at += block) {
    begin_ = begin + static_cast<std::int64_t>(at);
    count_ = std::min(block, size - at);
    padded_ = (count_ + block_lanes - 1) / block_lanes * block_lanes;
    load(actual_, actual, at, a_);
    load(reference_, reference, at, r_);
    add_block();
  }
  m.elements = static_cast<std::int64_t>(size);
  finish_range(m.actual, m.elements);
  finish_range(m.reference, m.elements);
  finish_histogram();
  return std::move(all_);
}

// NaN fills the last lanes: it is left out like any other.
void BlockPass::load(DType dtype, std::span<const std::byte> bytes, std::size_t at, Buffer& buffer) const {
  const std::size_t size = size_of(dtype);
  const auto rest = bytes.subspan((at + count_) * size);
  prefetch(rest.first(std::min(block * size, rest.size())));
  buffer.bytes = bytes.subspan(at * size, count_ * size);
  decode(dtype, buffer.bytes, std::span(buffer.values).first(count_));
  std::fill(buffer.values.data() + count_, buffer.values.data() + padded_,
            std::numeric_limits<double>::quiet_NaN());
}

std::span<const double> BlockPass::values(const Buffer& buffer) const {
  return std::span(buffer.values).first(padded_);
}

void BlockPass::add_block() {
  const bool actual_is_finite = describe(all_.metrics.actual, actual_, a_);
  const bool reference_is_finite = describe(all_.metrics.reference, reference_, r_);
  const bool same_bits = by_bits() && compare_bits();
  left_out_.clear();
  first_finite_ = 0;
  if (!actual_is_finite || !reference_is_finite) leave_out_specials();
  const std::uint64_t largest = set_distances(same_bits);
  set_limits();
  const ErrorTotals totals =
      add_errors({a_.values.data(), r_.values.data(), difference_.data(), limit_.data(), padded_});
  errors(totals);
  ulps(largest);
  moments(totals);
  all_.finite += static_cast<std::int64_t>(padded_ - left_out_.size());
}

// Returns whether all elements are finite.
bool BlockPass::describe(Side& side, DType dtype, const Buffer& buffer) const {
  const double normal = is_float(dtype) ? std::ldexp(1.0, format_of(dtype).min_exponent()) : 0;
  const ValueCounts n = count_values(values(buffer), normal);
  side.nan += n.nan - static_cast<std::int64_t>(padded_ - count_);
  side.infinite += n.infinite;
  side.zero += n.zero;
  side.subnormal += normal > 0 ? n.small - n.zero : 0;
  side.min = std::min(side.min, n.min);
  side.max = std::max(side.max, n.max);
  return n.nan == 0 && n.infinite == 0;
}

bool BlockPass::by_bits() const {
  return actual_ == reference_ && is_float(unit_);
}

// Returns whether there are no others. The first is looked for where none is known from the blocks before.
bool BlockPass::compare_bits() {
  const std::size_t size = size_of(actual_);
  const std::int64_t different = different_elements(a_.bytes, r_.bytes, size);
  add_different(different, [&] {
    const auto first = std::ranges::mismatch(a_.bytes, r_.bytes).in1 - a_.bytes.begin();
    return static_cast<std::size_t>(first) / size;
  });
  return different == 0;
}

template <class First>
void BlockPass::add_different(std::int64_t count, First first) {
  Metrics& m = all_.metrics;
  if (count == 0) return;
  m.different_bits += count;
  if (m.different_bits_at >= 0 && m.different_bits_at < begin_) return;
  const std::int64_t at = begin_ + static_cast<std::int64_t>(first());
  m.different_bits_at = m.different_bits_at < 0 ? at : std::min(m.different_bits_at, at);
}

// Elements that are not finite on one side at least are judged here and then left out: both become 0.
void BlockPass::leave_out_specials() {
  for (std::size_t i = 0; i < padded_; ++i) {
    const double a = a_.values[i], r = r_.values[i];
    if (std::isfinite(a) && std::isfinite(r)) continue;
    if (left_out_.size() == i) first_finite_ = i + 1;
    left_out_.push_back(i);
    a_.values[i] = r_.values[i] = 0;
    judge_special(a, r, i);
  }
}

void BlockPass::judge_special(double a, double r, std::size_t i) {
  Metrics& m = all_.metrics;
  const bool equal = (std::isnan(a) && std::isnan(r)) || a == r;
  if (!equal && !by_bits()) add_different(1, [&] { return i; });
  const bool overflow = overflows_to(actual_, r, a);
  m.overflowed += overflow ? 1 : 0;
  if (equal || overflow) return;
  const std::int64_t at = begin_ + static_cast<std::int64_t>(i);
  if (m.special_mismatch++ == 0) m.special_mismatch_at = at;
  ++m.over;
  keep_larger(m.worst_ratio, m.worst_at, infinity, at);
}

// Differences, and how many units they are. Returns the most units; if it is 0, `ulps_` is not set.
std::uint64_t BlockPass::set_distances(bool same_bits) {
  if (is_float(unit_) || (fits_float64(actual_) && fits_float64(reference_))) {
    subtract(values(a_), values(r_), difference_.data());
    if (same_bits) return 0;
    return is_float(unit_) ? subtract_ordinals(unit_, values(a_), values(r_), ulps_.data())
                           : whole_distances(std::span(difference_).first(padded_), ulps_.data());
  }
  std::fill(difference_.data() + count_, difference_.data() + padded_, 0.0);
  std::fill(ulps_.data() + count_, ulps_.data() + padded_, 0);
  return subtract_integers(actual_, reference_, a_.bytes, r_.bytes, difference_.data(), ulps_.data());
}

void BlockPass::set_limits() {
  const std::span<const double> bound =
      allowed_.bound.empty() ? allowed_.bound
                             : allowed_.bound.subspan(static_cast<std::size_t>(begin_), count_);
  if (!bound.empty() && allowed_.atol == 0 && allowed_.rtol == 0) {
    std::ranges::copy(bound, limit_.begin());
  } else {
    allowed_errors(values(r_), allowed_.atol, allowed_.rtol, limit_.data());
    for (std::size_t i = 0; i < bound.size(); ++i) limit_[i] += bound[i];
  }
  for (const std::size_t i : left_out_) limit_[i] = 0;  // already judged
}

void BlockPass::errors(const ErrorTotals& t) {
  Metrics& m = all_.metrics;
  all_.abs.add(t.abs);
  all_.square.add(t.square);
  all_.relative.add(t.relative);
  all_.cross.add(t.cross);
  all_.actual_square.add(t.actual_square);
  all_.reference_square.add(t.reference_square);
  all_.relatives += t.relatives;
  m.above += t.above;
  m.below += t.below;
  m.over += t.over;
  if (!by_bits()) {
    add_different(t.above + t.below, [&] {
      const auto first = std::ranges::find_if(difference_, [](double d) { return d != 0; });
      return static_cast<std::size_t>(first - difference_.begin());
    });
  }
  const auto error = [&](std::size_t i) { return std::abs(difference_[i]); };
  const auto ratio = [&](std::size_t i) { return error_ratio(error(i), limit_[i]); };
  keep(m.worst_ratio, m.worst_at, t.max_ratio, 0, ratio);
  keep(m.max_abs, m.max_abs_at, t.max_abs, first_finite_, error);
  if (t.relatives == 0) return;
  keep(m.max_rel, m.max_rel_at, t.max_rel, first_finite_, [&](std::size_t i) {
    return r_.values[i] != 0 ? error(i) / std::abs(r_.values[i]) : -1;  // -1: not counted
  });
}

// The first from `first` on that is the block's largest, if that is more than in the blocks before.
template <class V, class ValueAt>
void BlockPass::keep(V& best, std::int64_t& best_at, V largest, std::size_t first, ValueAt value_at) {
  if (best_at >= 0 && best_at < begin_ && !(largest > best)) return;
  for (std::size_t i = first; i < padded_; ++i) {
    if (value_at(i) == largest)
      return keep_larger(best, best_at, largest, begin_ + static_cast<std::int64_t>(i));
  }
}

void BlockPass::ulps(std::uint64_t largest) {
  Metrics& m = all_.metrics;
  keep(m.max_ulp, m.max_ulp_at, largest, first_finite_,
       [&](std::size_t i) { return largest == 0 ? 0 : ulps_[i]; });
  histograms_[0][0] -= static_cast<std::int64_t>(padded_ - count_);
  if (largest == 0) {
    histograms_[0][0] += static_cast<std::int64_t>(padded_);
    return;
  }
  to_bit_widths(std::span(ulps_).first(padded_));
  for (std::size_t i = 0; i < padded_; i += block_lanes) {
    for (std::size_t lane = 0; lane < block_lanes; ++lane) ++histograms_[lane][ulps_[i + lane]];
  }
}

// In a second pass, so that nothing cancels.
void BlockPass::moments(const ErrorTotals& t) {
  const auto finite = static_cast<double>(padded_ - left_out_.size());
  if (finite == 0) return;
  const auto side = [&](Moments& all, Buffer& buffer, double sum) {
    const double mean = sum / finite;
    for (const std::size_t i : left_out_) buffer.values[i] = mean;  // there it adds nothing
    Moments own;
    own.sum.add(sum);
    own.squares = squares_about(mean, values(buffer));
    all.merge(static_cast<double>(all_.finite), own, finite);
  };
  side(all_.actual, a_, t.actual);
  side(all_.reference, r_, t.reference);
}

void BlockPass::finish_histogram() {
  Metrics& m = all_.metrics;
  Histogram& all = histograms_[0];
  for (std::size_t lane = 1; lane < block_lanes; ++lane) {
    for (std::size_t width = 0; width < all.size(); ++width) all[width] += histograms_[lane][width];
  }
  all[0] -= m.special_mismatch;
  const auto last = std::find_if(all.rbegin(), all.rend(), [](std::int64_t n) { return n != 0; });
  m.ulp_histogram.assign(all.begin(), last.base());
}

}  // namespace assay
