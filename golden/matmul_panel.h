#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "assay/golden/certified_matmul.h"

namespace assay {

/// A factor of a product as its lines: the rows of a, the columns of b.
struct Lines {
  const float* data;
  std::int64_t stride;  ///< from one stored row to the next
  std::int64_t count, depth;
  bool contiguous;  ///< a line is a stored row; else a stored column

  float operator()(std::int64_t line, std::int64_t k) const {
    return contiguous ? data[line * stride + k] : data[k * stride + line];
  }
};
Lines rows_of(const MatrixView& a);
Lines columns_of(const MatrixView& b);

/// Up to `max_lines` lines of a factor in float64, one stretch of k at a time, with what is learned about
/// them on the way. The memory is fixed; a thread uses one Panel for all its blocks.
class Panel {
 public:
  static constexpr std::int64_t max_lines = 1024;
  /// Long enough that OpenBLAS loses nothing against one call for all k (measured: no difference from 384
  /// on), short enough to stay in the cache.
  static constexpr std::int64_t wide_depth = 512;
  static constexpr std::int64_t float_depth = 1024;

  explicit Panel(const Lines&);

  /// Turns to lines [first, first + count).
  void start(std::int64_t first, std::int64_t count);
  std::int64_t first() const { return first_; }
  std::int64_t count() const { return count_; }

  /// Elements [k, k + depth) of the lines as float64, stored as the factor is, wide_stride() apart. Every k
  /// must be seen once before finish().
  const double* widen(std::int64_t k, std::int64_t depth);
  std::int64_t wide_stride() const { return lines_.contiguous ? wide_depth + padding : max_lines + padding; }

  /// Sets norms() and units().
  void finish();
  /// Upper bounds of the Euclidean norms; infinity or NaN where the line has one.
  const std::vector<double>& norms() const { return norms_; }
  /// Upper bounds of the norms in units of the lowest bit set anywhere in the line; NaN where it is not finite.
  const std::vector<double>& units() const { return units_; }

  /// Elements [k, k + depth) of a line of the panel side by side, for k a multiple of float_depth and depth up
  /// to it. Valid until another k is asked for.
  const float* line(std::int64_t i, std::int64_t k, std::int64_t depth);

 private:
  // Lines a power of two apart would fall into the same few cache sets.
  static constexpr std::int64_t padding = 16;
  static constexpr std::int64_t gathered_together = 16;  // the floats of a cache line

  Lines lines_;
  std::int64_t first_ = 0, count_ = 0;
  std::unique_ptr<double[]> wide_;
  std::vector<double> squares_, norms_, units_;
  std::vector<std::uint32_t> lowest_;
  // What line() gathers of stored columns, made when first needed.
  std::unique_ptr<float[]> gathered_;
  std::vector<bool> is_gathered_;
  std::int64_t gathered_k_ = -1;
};

}  // namespace assay
