#include "assay/compare/pairs/statistic_bounds.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "assay/compare/measure/overflow.h"

// Let |a_i - g_i| <= atol + rtol |g_i| for all i of n elements. Then, with m1 = mean |g|:
//   max   |max a - max g| <= atol + rtol |max g|: the two ends of what is allowed for g_i do not fall as it
//         grows, where rtol <= 1, so that they are reached at the largest; min alike
//   sum   |sum a - sum g| <= sum |a_i - g_i| <= n (atol + rtol m1), and so does sum |a|; the mean: by n
//   l2    | ||a|| - ||g|| | <= ||a - g|| <= sqrt(n) atol + rtol ||g||  (Minkowski)
// To that comes what each side's own statistic is off. Recorders add in an order that nobody knows, and store
// the result in what they add in (unit roundoff u): what they say, else float32, or the tensor's own dtype if
// that is narrower. By Higham 2002, sec. 3.1 and 4.2, the mean is off by gamma(n) m1 at most and the norm by
// gamma(n) ||x||, gamma(n) = n u / (1 - n u). That is no exaggeration: torch 2.13 on a CPU takes the norm of
// 2^26 equal float16 as 45 % too small, and msprobe has recorded that of a [12, 2, 14] slice in bfloat16 as 3
// % too small. From n u = 1 on no bound holds. What underflows, even to zero, is off by the smallest normal
// number at most: squares take n times that from ||x||^2.

namespace assay {
namespace {

constexpr double float64_unit = 0x1p-53;

// Statistics that NaN propagates through, and those that leave it out, are made alike.
void propagate_nan(Statistics& s) {
  const std::int64_t nan = s.nan.value_or(0), inf = s.inf.value_or(0);
  if (nan + inf > 0) s.sum = s.abs_sum = s.mean = s.l2 = std::nullopt;
  if (nan > 0) s.min = s.max = s.l2 = std::numeric_limits<double>::quiet_NaN();
  s.nan = s.inf = std::nullopt;
}

// The true value is x where x (1 + d), |d| <= unit, was recorded.
double off_by(double recorded, double unit) {
  return unit < 1 ? std::abs(recorded) * unit / (1 - unit) : infinity;
}

/// One side's statistics with what they may be off.
class StatisticSide {
 public:
  StatisticSide(const KnownStatistics& known, std::int64_t elements)
      : s_(known.values), n_(static_cast<double>(elements)) {
    has_exact_mean_ = s_.sum && n_ > 0 && s_.nan.value_or(0) + s_.inf.value_or(0) == 0;
    if (known.is_computed) {
      sum_unit_ = stored_unit_ = 4 * float64_unit;
      return;
    }
    const bool is_narrow = is_float(known.dtype) && size_of(known.dtype) < size_of(DType::float32);
    const DType arithmetic = s_.arithmetic.value_or(is_narrow ? known.dtype : DType::float32);
    const double u = unit_roundoff(arithmetic);
    const double nu = (n_ + 2) * u;  // squares and the division are rounded, too
    sum_unit_ = nu < 1 ? nu / (1 - nu) : infinity;
    stored_unit_ = u + s_.rounding + u * s_.rounding;
    underflow_ = std::exp2(format_of(arithmetic).min_exponent());
    lost_squares_ = std::sqrt(n_ * underflow_);
  }

  double extreme_off(double recorded) const { return off_by(recorded, s_.rounding); }
  double sum_off(double recorded) const { return std::abs(recorded) * float64_unit; }
  double l2_off(double recorded) const {
    const double unit = sum_unit_ + stored_unit_ + sum_unit_ * stored_unit_;
    return off_by(recorded, unit) + lost_squares_ + underflow_;
  }
  double mean_off(double recorded) const {
    if (has_exact_mean_) return 2 * sum_off(recorded);
    return off_by(recorded, stored_unit_) + sum_unit_ * mean_abs() + underflow_;
  }

  std::optional<double> mean() const { return has_exact_mean_ ? *s_.sum / n_ : s_.mean; }
  /// At most: mean |x| <= ||x|| / sqrt(n), and no more than the largest.
  double mean_abs() const {
    if (s_.abs_sum) return *s_.abs_sum / n_ * (1 + 4 * float64_unit);
    double most = infinity;
    if (s_.l2) most = (*s_.l2 + l2_off(*s_.l2)) / std::sqrt(n_);
    if (s_.min && s_.max) {
      const double largest = std::max(std::abs(*s_.min), std::abs(*s_.max));
      most = std::fmin(most, largest + extreme_off(largest));
    }
    return std::isnan(most) ? infinity : most;
  }

 private:
  const Statistics& s_;
  double n_;
  bool has_exact_mean_ = false;
  double sum_unit_ = 0;     // of a long sum, relative to the sum of its magnitudes
  double stored_unit_ = 0;  // of the result
  double lost_squares_ = 0, underflow_ = 0;
};

class Comparison {
 public:
  Comparison(const KnownStatistics& actual, const KnownStatistics& reference, std::int64_t elements,
             double atol, double rtol)
      : a_(actual), g_(reference), n_(static_cast<double>(elements)), atol_(atol), rtol_(rtol) {
    if (!a_.values.nan || !g_.values.nan) {
      propagate_nan(a_.values);
      propagate_nan(g_.values);
    }
    counts();
    const StatisticSide a(a_, elements), g(g_, elements);
    for (const auto& [name, which] : {std::pair{"max", &Statistics::max}, {"min", &Statistics::min}})
      extreme(name, a_.values.*which, g_.values.*which, a, g);
    if (a_.values.nan != g_.values.nan || a_.values.inf != g_.values.inf) return;
    sums(a, g);
    norms(a, g);
  }

  std::vector<ComparedStatistic> take() { return std::move(compared_); }

 private:
  void add(const char* name, double actual, double reference, double allowed) {
    constexpr double slack = 1 + 0x1p-40;  // of computing the bound
    compared_.push_back({name, actual, reference, std::isfinite(allowed) ? allowed * slack : infinity});
  }

  // An infinity on the actual side may be forced by its dtype.
  void counts() {
    const auto count = [&](const char* name, std::optional<std::int64_t> Statistics::*which) {
      const auto actual = a_.values.*which, reference = g_.values.*which;
      if (actual && reference) add(name, static_cast<double>(*actual), static_cast<double>(*reference), 0);
    };
    count("NaN", &Statistics::nan);
    if (a_.dtype == g_.dtype) count("Inf", &Statistics::inf);
  }

  void extreme(const char* name, std::optional<double> actual, std::optional<double> reference,
               const StatisticSide& a, const StatisticSide& g) {
    if (!actual || !reference || (std::isnan(*actual) && std::isnan(*reference))) return;
    if (overflows_to(a_.dtype, *reference, *actual)) return;
    if (!std::isfinite(*actual) || !std::isfinite(*reference)) return add(name, *actual, *reference, 0);
    const double off = g.extreme_off(*reference);
    const double reach = rtol_ <= 1 ? rtol_ * (std::abs(*reference) + off) : infinity;
    add(name, *actual, *reference, atol_ + reach + a.extreme_off(*actual) + off);
  }

  void sums(const StatisticSide& a, const StatisticSide& g) {
    const double each = atol_ + (rtol_ > 0 ? rtol_ * g.mean_abs() : 0);
    const Statistics &actual = a_.values, &reference = g_.values;
    const auto exact = [&](const char* name, double x, double y) {
      // Without a tolerance equal elements have equal sums, as each is rounded once.
      add(name, x, y, each == 0 ? 0 : n_ * each + a.sum_off(x) + g.sum_off(y));
    };
    if (actual.sum && reference.sum) exact("sum", *actual.sum, *reference.sum);
    if (actual.abs_sum && reference.abs_sum) exact("abs sum", *actual.abs_sum, *reference.abs_sum);
    const auto x = a.mean(), y = g.mean();
    if ((actual.sum && reference.sum) || !x || !y || !std::isfinite(*x) || !std::isfinite(*y)) return;
    add("mean", *x, *y, each + a.mean_off(*x) + g.mean_off(*y));
  }

  // An infinite norm may be one whose squares left the range; a NaN cannot.
  void norms(const StatisticSide& a, const StatisticSide& g) {
    const auto x = a_.values.l2, y = g_.values.l2;
    if (!x || !y || std::isinf(*x) || std::isinf(*y) || (std::isnan(*x) && std::isnan(*y))) return;
    if (std::isnan(*x) || std::isnan(*y)) return add("l2", *x, *y, 0);
    const double off = g.l2_off(*y);
    add("l2", *x, *y, std::sqrt(n_) * atol_ + rtol_ * (*y + off) + a.l2_off(*x) + off);
  }

  KnownStatistics a_, g_;
  double n_, atol_, rtol_;
  std::vector<ComparedStatistic> compared_;
};

std::string contradicting_counts(const Statistics& s, std::int64_t elements) {
  const std::int64_t nan = s.nan.value_or(0), inf = s.inf.value_or(0);
  if (nan < 0 || inf < 0 || nan > elements || inf > elements - nan)
    return fmt::format("{} NaN and {} Inf of {} elements", nan, inf, elements);
  if (s.nan == 0 && ((s.min && std::isnan(*s.min)) || (s.max && std::isnan(*s.max))))
    return "an extreme is NaN, and no element is";
  if (!s.inf || !s.min || !s.max) return "";
  const bool is_infinite = std::isinf(*s.min) || std::isinf(*s.max);
  return is_infinite == (inf > 0) ? "" : fmt::format("min {} and max {} with {} Inf", *s.min, *s.max, inf);
}

}  // namespace

std::string contradiction(const KnownStatistics& known, std::int64_t elements) {
  const Statistics& s = known.values;
  if (std::string counts = contradicting_counts(s, elements); !counts.empty()) return counts;
  const StatisticSide side(known, elements);
  const auto off = [&](double extreme) { return side.extreme_off(extreme) + side.sum_off(extreme); };
  if (s.min && s.max && *s.min - off(*s.min) > *s.max + off(*s.max))
    return fmt::format("min {} is above max {}", *s.min, *s.max);
  if (const auto mean = side.mean()) {
    const double least = *mean - side.mean_off(*mean), most = *mean + side.mean_off(*mean);
    if (s.min && most < *s.min - off(*s.min)) return fmt::format("mean {} is below min {}", *mean, *s.min);
    if (s.max && least > *s.max + off(*s.max)) return fmt::format("mean {} is above max {}", *mean, *s.max);
  }
  const double sum = std::abs(s.sum.value_or(0));
  if (s.abs_sum && *s.abs_sum + side.sum_off(sum) < sum)
    return fmt::format("abs sum {} is below the magnitude {} of sum", *s.abs_sum, sum);
  return s.l2 && *s.l2 < 0 ? fmt::format("l2 {} is negative", *s.l2) : "";
}

std::vector<ComparedStatistic> compare_statistics(const KnownStatistics& actual,
                                                  const KnownStatistics& reference, std::int64_t elements,
                                                  double atol, double rtol) {
  return Comparison(actual, reference, elements, atol, rtol).take();
}

double ratio(const ComparedStatistic& s) {
  if (s.actual == s.reference || std::isinf(s.allowed)) return 0;
  const double q = std::abs(s.actual - s.reference) / s.allowed;
  return std::isnan(q) ? infinity : q;
}

}  // namespace assay
