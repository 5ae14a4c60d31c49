#include "assay/compare/metrics.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <thread>
#include <vector>

#include "assay/golden/error.h"

namespace assay {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr std::int64_t block = 2048;     // both sides, decoded, stay in L1
constexpr std::int64_t chunk = 1 << 16;  // what a thread takes; fixed, so that the merge order is fixed

// A sum whose error stays at one rounding of the total: Knuth's TwoSum keeps what each addition loses.
struct CompensatedSum {
  double high = 0, low = 0;
  void add(double x) {
    const double total = high + x;
    const double x_part = total - high;
    low += (high - (total - x_part)) + (x - x_part);
    high = total;
  }
  double value() const { return high + low; }
};

// What chunks add up to before the roots are taken.
struct Sums {
  CompensatedSum abs, square, actual_square, reference_square;
  std::int64_t finite = 0;
};

struct Partial {
  Metrics metrics;
  Sums sums;
};

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

template <class V>
void keep_larger(V& value, std::int64_t& at, V other, std::int64_t other_at) {
  if (other_at >= 0 && (at < 0 || other > value)) {
    value = other;
    at = other_at;
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
  for (std::size_t k = 0; k < m.ulp_histogram.size(); ++k) m.ulp_histogram[k] += f.ulp_histogram[k];
  m.different_bits += f.different_bits;
  if (m.special_mismatch_at < 0) m.special_mismatch_at = f.special_mismatch_at;
  m.special_mismatch += f.special_mismatch;
  m.overflowed += f.overflowed;
  m.above += f.above;
  m.below += f.below;
  m.over += f.over;
  into.sums.abs.add(from.sums.abs.value());
  into.sums.square.add(from.sums.square.value());
  into.sums.actual_square.add(from.sums.actual_square.value());
  into.sums.reference_square.add(from.sums.reference_square.value());
  into.sums.finite += from.sums.finite;
}

// The position of a value on the line of all values of its dtype, so that neighbours differ by one. Both
// zeros are 0.
std::int64_t ordinal(std::uint64_t code, int bits) {
  const std::uint64_t magnitude = code & ((std::uint64_t{1} << (bits - 1)) - 1);
  return (code >> (bits - 1)) != 0 ? -static_cast<std::int64_t>(magnitude)
                                   : static_cast<std::int64_t>(magnitude);
}

std::int64_t integer_ordinal(DType d, std::uint64_t code) {
  const int unused = 64 - 8 * static_cast<int>(size_of(d));
  const bool is_signed = d == DType::int64 || d == DType::int32 || d == DType::int16 || d == DType::int8;
  if (is_signed) return static_cast<std::int64_t>(code << unused) >> unused;
  return static_cast<std::int64_t>(code ^ (std::uint64_t{1} << 63));
}

// One chunk of the pair, block by block: decode both sides, then one loop over the elements.
class Pass {
 public:
  Pass(const Tensor& actual, const Tensor& reference, const Allowed& allowed)
      : actual_(actual),
        reference_(reference),
        allowed_(allowed),
        unit_(coarser(actual.dtype(), reference.dtype())),
        same_dtype_(actual.dtype() == reference.dtype()) {}

  Partial run(std::int64_t begin, std::int64_t end) {
    Partial total;
    for (begin_ = begin; begin_ < end; begin_ += block) {
      const std::int64_t count = std::min(block, end - begin_);
      load(actual_, count, a_);
      load(reference_, count, r_);
      Partial p;
      p.metrics.elements = count;
      for (std::int64_t i = 0; i < count; ++i) element(p, i);
      describe(p.metrics.actual, actual_.dtype(), count, a_);
      describe(p.metrics.reference, reference_.dtype(), count, r_);
      merge_into(total, p);
    }
    return total;
  }

 private:
  struct Buffer {
    std::array<double, block> values;
    const std::byte* bytes = nullptr;
  };

  void load(const Tensor& t, std::int64_t count, Buffer& buffer) const {
    const std::size_t size = size_of(t.dtype());
    const auto bytes =
        t.bytes().subspan(static_cast<std::size_t>(begin_) * size, static_cast<std::size_t>(count) * size);
    buffer.bytes = bytes.data();
    decode(t.dtype(), bytes, std::span(buffer.values.data(), static_cast<std::size_t>(count)));
  }

  static std::uint64_t code_at(const Buffer& buffer, DType d, std::int64_t i) {
    std::uint64_t code = 0;
    std::memcpy(&code, buffer.bytes + static_cast<std::size_t>(i) * size_of(d), size_of(d));
    return code;
  }

  // In units of the coarser dtype; a finer value is rounded to it first.
  std::int64_t ordinal_at(const Buffer& buffer, DType d, std::int64_t i) const {
    if (!is_float(unit_)) return integer_ordinal(d, code_at(buffer, d, i));
    const int padding = unit_ == DType::tfloat32 ? 13 : unit_ == DType::hfloat32 ? 12 : 0;
    const int bits = 8 * static_cast<int>(size_of(unit_)) - padding;
    const std::uint64_t code =
        d == unit_ ? code_at(buffer, d, i)
        : unit_ == DType::float32
            ? std::bit_cast<std::uint32_t>(static_cast<float>(buffer.values[static_cast<std::size_t>(i)]))
            : encode(unit_, buffer.values[static_cast<std::size_t>(i)]);
    return ordinal(code >> padding, bits);
  }

  void element(Partial& p, std::int64_t i) {
    Metrics& m = p.metrics;
    const double a = a_.values[static_cast<std::size_t>(i)], r = r_.values[static_cast<std::size_t>(i)];
    const std::int64_t at = begin_ + i;
    if (same_dtype_ ? code_at(a_, actual_.dtype(), i) != code_at(r_, reference_.dtype(), i) : !(a == r)) {
      ++m.different_bits;
    }
    if (!std::isfinite(a) || !std::isfinite(r)) return special(m, a, r, at);
    const double d = std::abs(a - r);
    p.sums.abs.add(d);
    p.sums.square.add(d * d);
    p.sums.actual_square.add(a * a);
    p.sums.reference_square.add(r * r);
    ++p.sums.finite;
    keep_larger(m.max_abs, m.max_abs_at, d, at);
    if (r != 0) keep_larger(m.max_rel, m.max_rel_at, d / std::abs(r), at);
    m.above += a > r ? 1 : 0;
    m.below += a < r ? 1 : 0;
    const std::int64_t left = ordinal_at(a_, actual_.dtype(), i),
                       right = ordinal_at(r_, reference_.dtype(), i);
    const std::uint64_t ulp = left > right
                                  ? static_cast<std::uint64_t>(left) - static_cast<std::uint64_t>(right)
                                  : static_cast<std::uint64_t>(right) - static_cast<std::uint64_t>(left);
    ++m.ulp_histogram[static_cast<std::size_t>(std::bit_width(ulp))];
    keep_larger(m.max_ulp, m.max_ulp_at, ulp, at);
    const double limit = allowed_.atol + allowed_.rtol * std::abs(r) +
                         (allowed_.bound.empty() ? 0 : allowed_.bound[static_cast<std::size_t>(at)]);
    judge(m, d, limit, at);
  }

  static void judge(Metrics& m, double error, double limit, std::int64_t at) {
    const bool within = error <= limit;  // states what passes, so that NaN fails
    if (!within) ++m.over;
    const double ratio = error == 0 ? 0 : limit > 0 ? error / limit : within ? 0 : infinity;
    keep_larger(m.worst_ratio, m.worst_at, ratio, at);
  }

  void special(Metrics& m, double a, double r, std::int64_t at) const {
    const bool equal = (std::isnan(a) && std::isnan(r)) || a == r;
    // The reference does not fit into the actual dtype and rounds to the very infinity that is there.
    const bool overflow =
        std::isinf(a) && std::isfinite(r) && is_float(actual_.dtype()) && round_to(actual_.dtype(), r) == a;
    if (overflow) ++m.overflowed;
    if (equal || overflow) {
      ++m.ulp_histogram[0];
      return;
    }
    if (m.special_mismatch++ == 0) m.special_mismatch_at = at;
    judge(m, infinity, 0, at);
  }

  static void describe(Side& side, DType dtype, std::int64_t count, const Buffer& buffer) {
    const double normal = is_float(dtype) ? std::ldexp(1.0, format_of(dtype).min_exponent()) : 0;
    bool any = false;
    for (std::int64_t i = 0; i < count; ++i) {
      const double v = buffer.values[static_cast<std::size_t>(i)];
      if (std::isnan(v)) {
        ++side.nan;
        continue;
      }
      side.min = any ? std::min(side.min, v) : v;
      side.max = any ? std::max(side.max, v) : v;
      any = true;
      side.infinite += std::isinf(v) ? 1 : 0;
      side.zero += v == 0 ? 1 : 0;
      side.subnormal += v != 0 && std::abs(v) < normal ? 1 : 0;
    }
  }

  const Tensor& actual_;
  const Tensor& reference_;
  Allowed allowed_;
  DType unit_;
  bool same_dtype_;
  std::int64_t begin_ = 0;
  Buffer a_, r_;
};

void finish(Partial& p) {
  Metrics& m = p.metrics;
  if (p.sums.finite == 0) return;
  const auto n = static_cast<double>(p.sums.finite);
  const double square = p.sums.square.value();
  const double actual_norm = std::sqrt(p.sums.actual_square.value());
  const double reference_norm = std::sqrt(p.sums.reference_square.value());
  m.mean_abs = p.sums.abs.value() / n;
  m.rmse = std::sqrt(square / n);
  m.relative_l2 = square == 0 ? 0 : std::sqrt(square) / reference_norm;
  const double norms = actual_norm - reference_norm;
  const double product = actual_norm * reference_norm;
  if (square != 0)
    m.one_minus_cosine = product == 0 ? 1 : std::max(0.0, (square - norms * norms) / (2 * product));
}

}  // namespace

DType coarser(DType a, DType b) {
  if (!is_float(a) || !is_float(b)) return is_float(a) ? b : a;
  return format_of(a).precision() <= format_of(b).precision() ? a : b;
}

Metrics measure(const Tensor& actual, const Tensor& reference, const Allowed& allowed, int threads) {
  if (actual.shape() != reference.shape()) {
    throw Error("shapes {} and {} cannot be compared element by element", to_string(actual.shape()),
                to_string(reference.shape()));
  }
  const std::int64_t size = actual.size();
  const auto chunks = static_cast<std::size_t>((size + chunk - 1) / chunk);
  std::vector<Partial> partials(chunks);
  std::atomic<std::size_t> next = 0;
  const auto work = [&] {
    const auto pass = std::make_unique<Pass>(actual, reference, allowed);
    for (std::size_t c = next++; c < chunks; c = next++) {
      const std::int64_t begin = static_cast<std::int64_t>(c) * chunk;
      partials[c] = pass->run(begin, std::min(size, begin + chunk));
    }
  };
  const auto helpers = std::min(chunks, static_cast<std::size_t>(std::max(1, threads)));
  std::vector<std::jthread> pool;
  for (std::size_t t = 1; t < helpers; ++t) pool.emplace_back(work);
  work();
  pool.clear();
  Partial total;
  for (const Partial& p : partials) merge_into(total, p);
  finish(total);
  total.metrics.ulp_dtype = coarser(actual.dtype(), reference.dtype());
  return total.metrics;
}

}  // namespace assay
