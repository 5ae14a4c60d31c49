#include "assay/compare/kernels/block.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "assay/compare/kernels/ordinals.h"
#include "assay/compare/kernels/overflow.h"

namespace assay {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

double total(const double (&lane)[8]) {
  return ((lane[0] + lane[1]) + (lane[2] + lane[3])) + ((lane[4] + lane[5]) + (lane[6] + lane[7]));
}

// The largest of `values` and its first position; NaN is never among them.
struct Largest {
  double value;
  std::int64_t at;
};
Largest largest_of(std::span<const double> values) {
  double best = -1;
  for (const double v : values) best = v > best ? v : best;
  return {best, std::ranges::find(values, best) - values.begin()};
}

using Histogram = std::array<std::int64_t, 65>;  // over the bit widths of 64-bit numbers

std::vector<std::int64_t> without_zeros_behind(const Histogram& histogram) {
  const auto last = std::find_if(histogram.rbegin(), histogram.rend(), [](std::int64_t n) { return n != 0; });
  return {histogram.begin(), last.base()};
}

}  // namespace

BlockPass::BlockPass(DType actual, DType reference, const Allowed& allowed)
    : actual_(actual), reference_(reference), allowed_(allowed), unit_(coarser(actual, reference)) {}

Partial BlockPass::run(std::span<const std::byte> actual, std::span<const std::byte> reference,
                       std::int64_t begin) {
  Partial all;
  const std::size_t size = actual.size() / size_of(actual_);
  for (std::size_t at = 0; at < size; at += block) {
    begin_ = begin + static_cast<std::int64_t>(at);
    count_ = std::min(block, size - at);
    load(actual_, actual, at, a_);
    load(reference_, reference, at, r_);
    merge_into(all, block_metrics());
  }
  return all;
}

// Whole lanes are read beyond the last element of a block.
void BlockPass::load(DType dtype, std::span<const std::byte> bytes, std::size_t at, Buffer& buffer) const {
  const std::size_t size = size_of(dtype);
  buffer.bytes = bytes.subspan(at * size, count_ * size);
  decode(dtype, buffer.bytes, std::span(buffer.values.data(), count_));
  std::fill_n(buffer.values.begin() + static_cast<std::ptrdiff_t>(count_), (lanes - count_ % lanes) % lanes,
              0.0);
}

Partial BlockPass::block_metrics() {
  Partial p;
  p.metrics.elements = static_cast<std::int64_t>(count_);
  describe(p.metrics.actual, actual_, a_);
  describe(p.metrics.reference, reference_, r_);
  special_.clear();
  if (!is_float(unit_)) {
    integers(p);
    moments(p);
    errors(p);
    return p;
  }
  different_bits(p.metrics);
  if (!all_finite()) special_elements(p);
  sums(p);
  moments(p);
  errors(p);
  ulps(p.metrics);
  return p;
}

void BlockPass::describe(Side& side, DType dtype, const Buffer& buffer) const {
  const double normal = is_float(dtype) ? std::ldexp(1.0, format_of(dtype).min_exponent()) : 0;
  const std::span values(buffer.values.data(), count_);
  std::int64_t nan = 0, infinite = 0, zero = 0, subnormal = 0;
  double low = infinity, high = -infinity;
  for (const double v : values) {
    const double size = std::abs(v);
    nan += v != v ? 1 : 0;
    infinite += size == infinity ? 1 : 0;
    zero += v == 0 ? 1 : 0;
    subnormal += size < normal ? 1 : 0;
    low = v < low ? v : low;
    high = v > high ? v : high;
  }
  side.nan = nan;
  side.infinite = infinite;
  side.zero = zero;
  side.subnormal = normal > 0 ? subnormal - zero : 0;
  const bool any = nan < static_cast<std::int64_t>(count_);
  side.min = any ? low + 0 : 0;  // -0 becomes 0: which zero comes first is no matter of the elements
  side.max = any ? high + 0 : 0;
}

void BlockPass::different_bits(Metrics& m) const {
  const auto count = [&](auto&& same) {
    for (std::size_t i = 0; i < count_; ++i) m.different_bits += same(i) ? 0 : 1;
    if (m.different_bits == 0) return;
    std::size_t first = 0;
    while (same(first)) ++first;
    m.different_bits_at = begin_ + static_cast<std::int64_t>(first);
  };
  if (actual_ != reference_) {
    return count([&](std::size_t i) {
      const double a = a_.values[i], r = r_.values[i];
      return a == r || (a != a && r != r);
    });
  }
  if (std::memcmp(a_.bytes.data(), r_.bytes.data(), a_.bytes.size()) == 0) return;
  const std::size_t size = size_of(actual_);
  count([&](std::size_t i) {
    return std::memcmp(a_.bytes.data() + i * size, r_.bytes.data() + i * size, size) == 0;
  });
}

// Of integers the float64 values do not say enough beyond 2^53: they are subtracted as they are.
void BlockPass::integers(Partial& p) {
  Metrics& m = p.metrics;
  m.max_ulp_at = begin_;
  Histogram histogram{};
  for (std::size_t i = 0; i < count_; ++i) {
    const auto at = begin_ + static_cast<std::int64_t>(i);
    const Integer a = integer_at(actual_, a_.bytes, i), r = integer_at(reference_, r_.bytes, i);
    const Integer distance = a > r ? a - r : r - a;
    constexpr Integer largest = std::numeric_limits<std::uint64_t>::max();
    const auto ulp = static_cast<std::uint64_t>(std::min(distance, largest));
    if (ulp != 0 && m.different_bits++ == 0) m.different_bits_at = at;
    ++histogram[static_cast<std::size_t>(std::bit_width(ulp))];
    keep_larger(m.max_ulp, m.max_ulp_at, ulp, at);
    const auto error = static_cast<double>(distance);
    error_[i] = error;
    p.abs.add(error);
    p.square.add(error * error);
    p.cross.add((a > r ? error : -error) * r_.values[i]);
    p.actual_square.add(a_.values[i] * a_.values[i]);
    p.reference_square.add(r_.values[i] * r_.values[i]);
    m.above += a > r ? 1 : 0;
    m.below += a < r ? 1 : 0;
  }
  m.ulp_histogram = without_zeros_behind(histogram);
  p.finite += static_cast<std::int64_t>(count_);
}

bool BlockPass::all_finite() const {
  // v * 0 is 0, or NaN where v is not finite.
  double lane[lanes] = {};
  for (std::size_t i = 0; i < count_; i += lanes) {
    for (std::size_t k = 0; k < lanes; ++k) lane[k] += a_.values[i + k] * 0 + r_.values[i + k] * 0;
  }
  return total(lane) == 0;
}

// Elements that are not finite on one side at least are judged here and then taken out: both become 0.
void BlockPass::special_elements(Partial& p) {
  Metrics& m = p.metrics;
  for (std::size_t i = 0; i < count_; ++i) {
    const double a = a_.values[i], r = r_.values[i];
    if (std::isfinite(a) && std::isfinite(r)) continue;
    --p.finite;
    special_.push_back(i);
    a_.values[i] = r_.values[i] = 0;
    const bool equal = (std::isnan(a) && std::isnan(r)) || a == r;
    const bool overflow = overflows_to(actual_, r, a);
    m.overflowed += overflow ? 1 : 0;
    if (equal || overflow) continue;
    const std::int64_t at = begin_ + static_cast<std::int64_t>(i);
    if (m.special_mismatch++ == 0) m.special_mismatch_at = at;
    ++m.over;
    keep_larger(m.worst_ratio, m.worst_at, infinity, at);
  }
}

void BlockPass::sums(Partial& p) {
  double abs[lanes] = {}, square[lanes] = {}, actual[lanes] = {}, reference[lanes] = {}, cross[lanes] = {};
  for (std::size_t i = 0; i < count_; i += lanes) {
    for (std::size_t k = 0; k < lanes; ++k) {
      const double a = a_.values[i + k], r = r_.values[i + k], d = std::abs(a - r);
      error_[i + k] = d;
      abs[k] += d;
      square[k] += d * d;
      cross[k] += (a - r) * r;
      actual[k] += a * a;
      reference[k] += r * r;
    }
  }
  for (const std::size_t i : special_) error_[i] = -1;  // among no largest
  p.finite += static_cast<std::int64_t>(count_);
  p.abs.add(total(abs));
  p.square.add(total(square));
  p.cross.add(total(cross));
  p.actual_square.add(total(actual));
  p.reference_square.add(total(reference));
}

// In two passes, so that nothing cancels.
void BlockPass::moments(Partial& p) {
  if (p.finite == 0) return;
  const auto side = [&](Moments& moments, const Buffer& buffer) {
    double sum[lanes] = {}, square[lanes] = {};
    for (std::size_t i = 0; i < count_; ++i) sum[i % lanes] += buffer.values[i];
    moments.sum.add(total(sum));
    const double mean = total(sum) / static_cast<double>(p.finite);
    for (std::size_t i = 0; i < count_; ++i) {
      const double off = error_[i] < 0 ? 0 : buffer.values[i] - mean;
      square[i % lanes] += off * off;
    }
    moments.squares = total(square);
  };
  side(p.actual, a_);
  side(p.reference, r_);
}

void BlockPass::errors(Partial& p) {
  Metrics& m = p.metrics;
  std::int64_t above = 0, below = 0, over = 0;
  const double atol = allowed_.atol, rtol = allowed_.rtol;
  for (std::size_t i = 0; i < count_; ++i) limit_[i] = atol + rtol * std::abs(r_.values[i]);
  if (!allowed_.bound.empty()) {
    const double* bound = allowed_.bound.data() + begin_;
    for (std::size_t i = 0; i < count_; ++i) limit_[i] += bound[i];
  }
  for (const std::size_t i : special_) limit_[i] = 0;  // already judged
  for (std::size_t i = 0; i < count_; ++i) {
    above += a_.values[i] > r_.values[i] ? 1 : 0;
    below += a_.values[i] < r_.values[i] ? 1 : 0;
    over += error_[i] <= limit_[i] ? 0 : 1;  // states what passes, so that NaN fails
  }
  if (is_float(unit_)) {
    m.above = above;
    m.below = below;
  }
  m.over += over;
  const auto keep = [&](double& value, std::int64_t& at, const std::array<double, block>& of) {
    const Largest largest = largest_of(std::span(of.data(), count_));
    if (largest.value >= 0) keep_larger(value, at, largest.value, begin_ + largest.at);
  };
  keep(m.max_abs, m.max_abs_at, error_);
  for (std::size_t i = 0; i < count_; ++i) {
    scratch_[i] = r_.values[i] != 0 ? error_[i] / std::abs(r_.values[i]) : -1;  // -1: not counted
  }
  double relative[lanes] = {};
  for (std::size_t i = 0; i < count_; ++i) {
    relative[i % lanes] += std::max(0.0, scratch_[i]);
    p.relatives += scratch_[i] < 0 ? 0 : 1;
  }
  p.relative.add(total(relative));
  keep(m.max_rel, m.max_rel_at, scratch_);
  for (std::size_t i = 0; i < count_; ++i) {
    const double none_allowed = error_[i] <= limit_[i] ? 0 : infinity;  // a limit that is NaN allows nothing
    scratch_[i] = limit_[i] > 0 ? std::max(0.0, error_[i] / limit_[i]) : none_allowed;
  }
  keep(m.worst_ratio, m.worst_at, scratch_);
}

void BlockPass::ulps(Metrics& m) {
  const auto side = [&](DType dtype, Buffer& buffer) {
    ordinals(unit_, dtype, buffer.bytes, std::span<const double>(buffer.values.data(), count_),
             buffer.ordinals.data());
  };
  side(actual_, a_);
  side(reference_, r_);
  for (const std::size_t i : special_) a_.ordinals[i] = r_.ordinals[i] = 0;
  std::uint64_t largest = 0;
  std::size_t at = 0;
  Histogram histogram{};
  for (std::size_t i = 0; i < count_; ++i) {
    const auto a = static_cast<std::uint64_t>(a_.ordinals[i]), r = static_cast<std::uint64_t>(r_.ordinals[i]);
    const std::uint64_t ulp = a_.ordinals[i] > r_.ordinals[i] ? a - r : r - a;
    ++histogram[static_cast<std::size_t>(std::bit_width(ulp))];
    at = ulp > largest ? i : at;
    largest = ulp > largest ? ulp : largest;
  }
  histogram[0] -= m.special_mismatch;
  m.ulp_histogram = without_zeros_behind(histogram);
  if (special_.size() == count_) return;
  // Where all are equal, the first that is finite stands for them, as for the other metrics.
  if (largest == 0) {
    const auto first = std::find_if(error_.begin(), error_.end(), [](double e) { return e >= 0; });
    at = static_cast<std::size_t>(first - error_.begin());
  }
  keep_larger(m.max_ulp, m.max_ulp_at, largest, begin_ + static_cast<std::int64_t>(at));
}

}  // namespace assay
