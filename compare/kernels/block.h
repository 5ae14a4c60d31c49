#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "assay/compare/kernels/partial.h"

namespace assay {

/// One thread's pass over windows of a pair, block by block: both sides are decoded into buffers that stay in
/// the L1 cache, then each metric is a plain loop over them that the compiler can vectorise. Sums keep a
/// fixed number of lanes, so that the result is the same on every instruction set.
class BlockPass {
 public:
  BlockPass(DType actual, DType reference, const Allowed&);
  /// @param begin  where the windows start in the pair
  Partial run(std::span<const std::byte> actual, std::span<const std::byte> reference, std::int64_t begin);

 private:
  static constexpr std::size_t block = 2048, lanes = 8;
  struct Buffer {
    alignas(64) std::array<double, block> values;
    alignas(64) std::array<std::int64_t, block> ordinals;
    std::span<const std::byte> bytes;
  };

  void load(DType, std::span<const std::byte>, std::size_t at, Buffer&) const;
  Partial block_metrics();
  void describe(Side&, DType, const Buffer&) const;
  void different_bits(Metrics&) const;
  bool all_finite() const;
  void sums(Partial&);
  void moments(Partial&);
  void errors(Partial&);
  void ulps(Metrics&);
  void integers(Partial&);
  void special_elements(Partial&);

  DType actual_, reference_;
  Allowed allowed_;
  DType unit_;
  std::int64_t begin_ = 0;  ///< of the current block
  std::size_t count_ = 0;
  Buffer a_, r_;
  std::vector<std::size_t> special_;  ///< elements of the block that are not finite on both sides
  alignas(64) std::array<double, block> error_, limit_, scratch_;
};

}  // namespace assay
