#include "assay/dumps/record/statistics.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "assay/golden/exact_sum.h"

namespace assay {
namespace {

// Integers have digits that float64 has not: the halves of each are summed instead.
void add_integers(const Tensor& tensor, ExactSum& sum, ExactSum& abs_sum) {
  const bool is_unsigned = tensor.dtype() == DType::uint64;
  for (const std::int64_t v : tensor.indices()) {
    const bool negative = v < 0 && !is_unsigned;
    const std::uint64_t size = negative ? 0 - static_cast<std::uint64_t>(v) : static_cast<std::uint64_t>(v);
    for (const double half :
         {std::ldexp(static_cast<double>(size >> 32), 32), static_cast<double>(size & 0xffffffffu)}) {
      sum.add(negative ? -half : half);
      abs_sum.add(half);
    }
  }
}

}  // namespace

Statistics statistics_of(const TensorSource& tensor) {
  ExactSum sum, abs_sum;
  std::int64_t nan = 0, inf = 0;
  double min = std::numeric_limits<double>::infinity(), max = -min;
  const bool is_integer = !is_float(tensor.dtype());
  tensor.for_each_window([&](const Tensor& window, std::int64_t) {
    if (is_integer) add_integers(window, sum, abs_sum);
    std::vector<double> values = window.values();
    for (const double v : values) {
      nan += std::isnan(v) ? 1 : 0;
      inf += std::isinf(v) ? 1 : 0;
      min = std::fmin(min, v);
      max = std::fmax(max, v);
    }
    if (is_integer) return;
    std::erase_if(values, [](double v) { return !std::isfinite(v); });
    sum.add(values);
    for (double& v : values) v = std::abs(v);
    abs_sum.add(values);
  });
  Statistics s;
  if (nan < tensor.size()) {
    s.min = min;
    s.max = max;
  }
  s.sum = sum.round();
  s.abs_sum = abs_sum.round();
  s.nan = nan;
  s.inf = inf;
  return s;
}

std::optional<double> l2_norm(const TensorSource& tensor) {
  ExactSum squares;
  tensor.for_each_window([&](const Tensor& window, std::int64_t) {
    const std::vector<double> values = window.values();
    squares.add_products(values, values);
  });
  const double sum = squares.round();
  const bool keeps_digits = sum == 0 || (std::isfinite(sum) && sum >= std::numeric_limits<double>::min());
  return keeps_digits ? std::optional(std::sqrt(sum)) : std::nullopt;
}

}  // namespace assay
