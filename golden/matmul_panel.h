#pragma once

#include <hwy/aligned_allocator.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <new>
#include <vector>

#include "assay/golden/certified_matmul.h"

namespace assay {

/// n elements, uninitialised, aligned for vectors. Throws std::bad_alloc, which Highway does not.
template <class T>
hwy::AlignedFreeUniquePtr<T[]> allocate(std::int64_t n) {
  auto memory = hwy::AllocateAligned<T>(static_cast<std::size_t>(n));
  if (!memory) throw std::bad_alloc();
  return memory;
}

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
  /// How much of k is in float64 at a time. OpenBLAS loses 1 to 2 % against one call for all k. With panels
  /// of this size glibc keeps the memory between calls; fetching 4 MiB more from the kernel each time costs 5
  /// %.
  static constexpr std::int64_t max_depth = 256;

  explicit Panel(const Lines&);

  /// Turns to lines [first, first + count).
  void start(std::int64_t first, std::int64_t count);
  std::int64_t first() const { return first_; }
  std::int64_t count() const { return count_; }

  /// From k, a multiple of max_depth: max_depth, or what is left.
  std::int64_t depth_at(std::int64_t k) const { return std::min(max_depth, lines_.depth - k); }

  /// Elements [k, k + depth_at(k)) of the lines as float64, stored as the factor is, wide_stride() apart.
  const double* widen(std::int64_t k);
  std::int64_t wide_stride() const { return (lines_.contiguous ? max_depth : max_lines) + padding; }

  /// Sets norms() and units() once all k were widened.
  void finish();
  /// Upper bounds of the Euclidean norms; infinity or NaN where the line has one.
  const std::vector<double>& norms() const { return norms_; }
  /// Upper bounds of the norms in units of the lowest bit set anywhere in the line; NaN where it is not
  /// finite.
  const std::vector<double>& units() const { return units_; }
  /// The value of the lowest bit set anywhere in line first() + i; 0 if the line is.
  double lowest(std::int64_t i) const {
    return std::bit_cast<float>(lowest_[static_cast<std::size_t>(i)] + 1);
  }

  /// Elements [k, k + depth_at(k)) of line first() + i, side by side. Valid until another k is asked for.
  const float* line(std::int64_t i, std::int64_t k);

 private:
  // Lines a power of two apart would fall into the same few cache sets.
  static constexpr std::int64_t padding = 16;
  static constexpr std::int64_t gathered_together = 32;  // whole cache lines, and few pages

  Lines lines_;
  std::int64_t first_ = 0, count_ = 0;
  hwy::AlignedFreeUniquePtr<double[]> wide_, squares_;
  hwy::AlignedFreeUniquePtr<std::uint32_t[]> lowest_;
  std::vector<double> norms_, units_;
  // What line() gathers of stored columns, made when first needed.
  hwy::AlignedFreeUniquePtr<float[]> gathered_;
  std::vector<bool> is_gathered_;
  std::int64_t gathered_k_ = -1;
};

}  // namespace assay
