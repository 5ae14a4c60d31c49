#pragma once

#include "assay/golden/arithmetic.h"

namespace assay {

/// sum exp(x_v - x_top) over v < n, and its logarithm, where x_top is the largest. Its own 1 stands apart:
/// log1p(others) keeps small losses, and others / total small 1 - p_top. Kernels have log(total) and 1 - p.
/// All is NaN where a value is, or where the largest is infinite. n > 0.
template <class T>
struct SumExp {
  /// @param x     x(v)
  /// @param add   the same sum of all exp(shifted(v)), in the order that kernels add it
  template <class F, class G>
  SumExp(std::int64_t n, F x, G add) {
    const auto shifted = [&](std::int64_t v) { return x(v) - top_value; };
    if constexpr (is_lanes<T>) {
      top_value = x(0);
      for (std::int64_t v = 1; v < n; ++v) top_value = maximum<T>(top_value, x(v));
      total = add(shifted);
      log_total = stored<T>(log(total));
    } else {
      for (std::int64_t v = 1; v < n; ++v) {
        if (x(top) < x(v)) top = v;
      }
      top_value = x(top);
      // The top's own term is 0, or NaN where the largest is not finite.
      others = sum<T>(n, [&](auto v) { return v == top ? shifted(v) : exp(shifted(v)); });
      total = either<T>([&] { return T(1) + others; }, [&] { return add(shifted); });
      log_total = stored(without_cancellation<T>([&] { return log1p(others); }, [&] { return log(total); }));
    }
  }
  template <class F>
  SumExp(std::int64_t n, F x)
      : SumExp(n, x, [n](auto shifted) { return sum<T>(n, [&](auto v) { return exp(shifted(v)); }); }) {}

  std::int64_t top = 0;  ///< not of BoundLanes, whose rows have their own; nor `others`
  T top_value, others, total, log_total;
};

/// The probabilities of one token, softmax of x(v), v < n.
template <class T, class F>
class Probabilities : public SumExp<T> {
 public:
  Probabilities(std::int64_t n, F x) : SumExp<T>(n, x), x_(x) {}
  template <class G>
  Probabilities(std::int64_t n, F x, G add) : SumExp<T>(n, x, add), x_(x) {}

  T shifted(std::int64_t v) const { return x_(v) - this->top_value; }
  T log_p(std::int64_t v) const { return shifted(v) - this->log_total; }
  T minus_log_p(std::int64_t v) const { return stored(-log_p(v)); }
  /// Kernels that keep log p have exp(log p).
  T p(std::int64_t v) const {
    return either<T>([&] { return stored(exp(shifted(v)) / this->total); },
                     [&] { return exp(-minus_log_p(v)); });
  }
  /// p_v (q + others) - q, where q is the target's share of v and `others` that of all other classes: without
  /// cancellation where one class alone is the target.
  T slope(std::int64_t v, const T& q, const T& other_q) const {
    const T p_v = p(v), rest = v == this->top ? this->others / this->total : T(1) - p_v;
    return without_cancellation<T>([&] { return p_v * other_q - q * rest; },
                                   [&] { return p_v * (other_q + q) - q; });
  }

 private:
  F x_;
};

}  // namespace assay
