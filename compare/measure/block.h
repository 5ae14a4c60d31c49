#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "assay/compare/measure/block_kernels.h"
#include "assay/compare/measure/partial.h"

namespace assay {

/// One thread's pass over windows of a pair of any two dtypes, block by block: both sides are decoded into
/// float64 buffers that stay in the caches, then each group of metrics is a loop over them.
class BlockPass {
 public:
  BlockPass(DType actual, DType reference, const Allowed&);
  /// @param begin  where the windows start in the pair
  Partial run(std::span<const std::byte> actual, std::span<const std::byte> reference, std::int64_t begin);

 private:
  static constexpr std::size_t block = 512;
  static_assert(block % block_lanes == 0);
  using Histogram = std::array<std::int64_t, 65>;  // over the bit widths of 64-bit numbers
  struct Buffer {
    alignas(64) std::array<double, block> values;
    std::span<const std::byte> bytes;
  };

  void load(DType, std::span<const std::byte>, std::size_t at, Buffer&) const;
  std::span<const double> values(const Buffer&) const;
  bool by_bits() const;  ///< whether elements are equal by their bits, not by their values
  void add_block();
  bool describe(Side&, DType, const Buffer&) const;
  bool compare_bits();
  template <class First>
  void add_different(std::int64_t count, First);
  void leave_out_specials();
  void judge_special(double actual, double reference, std::size_t i);
  std::uint64_t set_distances(bool same_bits);
  void set_limits();
  void errors(const ErrorTotals&);
  template <class V, class Of>
  void keep(V& best, std::int64_t& best_at, V largest, std::size_t first, Of);
  void ulps(std::uint64_t largest);
  void moments(const ErrorTotals&);
  void finish_histogram();

  DType actual_, reference_;
  Allowed allowed_;
  DType unit_;
  Partial all_;                         ///< of the blocks before
  std::int64_t begin_ = 0;              ///< of the current block
  std::size_t count_ = 0, padded_ = 0;  ///< its elements; with those that fill its last lanes
  Buffer a_, r_;
  std::vector<std::size_t> left_out_;  ///< elements that are not finite on both sides, or fill the last lanes
  std::size_t first_finite_ = 0;       ///< the first that is not left out
  alignas(64) std::array<double, block> difference_, limit_;  ///< actual - reference, and what is allowed
  alignas(64) std::array<std::uint64_t, block> ulps_;
  std::array<Histogram, block_lanes> histograms_;  ///< of each lane, so that none waits for the one before
};

}  // namespace assay
