#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "assay/compare/measure/fused.h"
#include "assay/compare/measure/partial.h"

namespace assay {

/// One thread's pass over windows of a pair in ascending order, block by block, in float32 vectors. Counts,
/// ulps and largest errors are those of float64 arithmetic: results that float32 cannot decide are computed
/// again in float64. Sums are within 2^-19 of themselves (15 + 7 + 1 additions in float32 and two roundings
/// of a term), most within 1e-8. Mean and standard deviation, with a shift up to sqrt(8) deviations away, are
/// within 2^-15 of the standard deviation.
class FusedPass {
 public:
  /// Whether it supports this pair and this allowed error.
  static bool takes(DType actual, DType reference, const Allowed&);
  FusedPass(DType actual, DType reference, const Allowed&);
  /// A largest error that an earlier window of this pass has reached is not reported again. Positions, but
  /// for that of special_mismatch, are those of blocks: see locate().
  /// @param begin  where the windows start in the pair
  Partial run(std::span<const std::byte> actual, std::span<const std::byte> reference, std::int64_t begin);

 private:
  // The largest of a kind so far.
  struct Floor {
    double value = 0;
    bool any = false;
    bool beaten_by(double x) const { return !any || x > value; }
  };

  void block(FusedBlock&);
  FusedResult in_float32(const FusedBlock&);
  void set_filters(FusedBlock&);
  void equal_block(const FusedBlock&, const FusedSide&);
  ExactErrors exact_errors(FusedBlock, const FusedResult&) const;
  bool sizes_are_decided(const FusedResult&) const;
  void widen(FusedResult&, ExactErrors&, FusedBlock&) const;
  void add(const FusedBlock&, const FusedResult&, ExactErrors);
  void judge_specials(const FusedBlock&, ExactErrors&);
  template <class V>
  void keep(Floor&, V value, V& best, std::int64_t& best_at) const;
  void add_side(Side&, Moments&, CompensatedSum& square, const FusedSide&, double shift, double n) const;

  DType actual_, reference_;
  double atol_, rtol_;
  Floor abs_, rel_, ratio_, ulp_;
  bool regular_ = true;  ///< the last block was
  // of the current window
  Partial partial_;
  std::array<std::int64_t, 33> histogram_;
  std::int64_t begin_ = 0;  ///< of the current block
};

}  // namespace assay
