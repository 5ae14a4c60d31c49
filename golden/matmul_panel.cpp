#include "assay/golden/matmul_panel.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>

#include "assay/golden/matmul_kernels.h"

namespace assay {
namespace {

std::size_t size(std::int64_t n) {
  return static_cast<std::size_t>(n);
}

}  // namespace

Lines rows_of(const MatrixView& a) {
  return {a.data, a.leading_dimension, a.rows, a.columns, !a.transposed};
}

Lines columns_of(const MatrixView& b) {
  return {b.data, b.leading_dimension, b.columns, b.rows, b.transposed};
}

Panel::Panel(const Lines& lines) : lines_(lines) {
  wide_ = allocate<double>(wide_stride() * (lines.contiguous ? max_lines : max_depth));
  squares_ = allocate<double>(max_lines);
  lowest_ = allocate<std::uint32_t>(max_lines);
}

void Panel::start(std::int64_t first, std::int64_t count) {
  first_ = first;
  count_ = count;
  std::fill_n(squares_.get(), count, 0);
  std::fill_n(lowest_.get(), count, no_bit_set);
  gathered_k_ = -1;
}

const double* Panel::widen(std::int64_t k) {
  const std::int64_t depth = depth_at(k);
  const LineSums sums = {squares_.get(), lowest_.get()};
  const auto stride = size(lines_.stride), wide_stride = size(this->wide_stride());
  if (lines_.contiguous)
    widen_rows(lines_.data + first_ * lines_.stride + k, stride, size(count_), size(depth), wide_.get(),
               wide_stride, sums);
  else
    widen_columns(lines_.data + k * lines_.stride + first_, stride, size(depth), size(count_), wide_.get(),
                  wide_stride, sums);
  return wide_.get();
}

// Squares of float32 are exact in float64 and neither overflow nor underflow, so a sum of K of them is at
// least 1 - K u of the true one (u = 2^-53), in any order. The factor makes up for that, for the square root,
// and with 2^-49 to spare for the few products and quotients that are computed with norms() and units().
void Panel::finish() {
  const double inflation = 1 + static_cast<double>(lines_.depth + 16) * 0x1p-52;
  norms_.resize(size(count_));
  units_.resize(size(count_));
  for (std::size_t i = 0; i < size(count_); ++i) {
    norms_[i] = std::sqrt(squares_[i]) * inflation;
    if (!std::isfinite(norms_[i]))
      units_[i] = std::numeric_limits<double>::quiet_NaN();
    else
      units_[i] = squares_[i] == 0 ? 0 : norms_[i] / lowest(static_cast<std::int64_t>(i));
  }
}

const float* Panel::line(std::int64_t i, std::int64_t k) {
  if (lines_.contiguous) return lines_.data + (first_ + i) * lines_.stride + k;
  constexpr std::int64_t stride = max_depth + padding;
  if (!gathered_) gathered_ = allocate<float>(max_lines * stride);
  if (k != gathered_k_) {
    is_gathered_.assign(size(max_lines / gathered_together), false);
    gathered_k_ = k;
  }
  const std::int64_t group = i / gathered_together;
  if (!is_gathered_[size(group)]) {
    const std::int64_t begin = group * gathered_together, end = std::min(begin + gathered_together, count_);
    const std::int64_t depth = depth_at(k);
    constexpr std::int64_t together = 8;  // few cache lines to read from, few stores to each line written
    for (std::int64_t first = 0; first < depth; first += together) {
      const std::int64_t last = std::min(first + together, depth);
      const float* from = lines_.data + k * lines_.stride + first_;
      for (std::int64_t step = last; step < std::min(last + together, depth); ++step)
        __builtin_prefetch(from + step * lines_.stride + begin);
      for (std::int64_t j = begin; j < end; ++j) {
        float* to = gathered_.get() + j * stride;
        for (std::int64_t step = first; step < last; ++step) to[step] = from[step * lines_.stride + j];
      }
    }
    is_gathered_[size(group)] = true;
  }
  return gathered_.get() + i * stride;
}

}  // namespace assay
