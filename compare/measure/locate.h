#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "assay/compare/result/metrics.h"
#include "assay/golden/tensor_source.h"

namespace assay {

/// Some decoded elements of a pair, for rare lookups.
struct PairValues {
  DType actual;
  std::vector<double> a, r;

  PairValues(DType actual, DType reference, const std::byte* actual_bytes, const std::byte* reference_bytes,
             std::size_t count);
  bool finite(std::size_t i) const;
  double error(std::size_t i) const;
  bool same(std::size_t i) const;
  /// The reference does not fit into the actual dtype and rounds to the very infinity that is there.
  bool overflowed(std::size_t i) const;
  bool mismatched(std::size_t i) const { return !finite(i) && !same(i) && !overflowed(i); }
};

/// Positions that are those of a block of `block` elements, or of the element itself, become those of the
/// first element there that has the value.
void locate(Metrics&, const TensorSource& actual, const TensorSource& reference, const Allowed&,
            std::int64_t block);

}  // namespace assay
