#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "assay/compare/causes/values/failing_pair.h"

namespace assay {

/// The actual tensor as a reordered reference. Both are seen as [outer, count, inner]; slice j of the middle
/// dimension is slice source(j) of the reference. -1: it comes from no slice.
struct IndexMap {
  std::int64_t count, inner;
  std::function<std::int64_t(std::int64_t)> source;
  bool zero_elsewhere = false;  ///< slices without a source are zero; else they are not judged

  /// Returns the flat position of the reference whose element is expected at `position`, or -1.
  std::int64_t operator()(std::int64_t position) const {
    const std::int64_t row = position / inner, j = row % count, from = source(j);
    return from < 0 ? -1 : position + (from - j) * inner;
  }
};

/// Reads elements of the reference in any order. A source without contiguous storage is read as a whole if it
/// is small; of a larger one, only long runs are read.
class Reordering {
 public:
  /// @param any_place  the maps may send each slice anywhere: that it fits somewhere is part of the accident
  explicit Reordering(const FailingPair&, bool any_place = false);

  double value(std::int64_t position) const;
  /// Whether maps with such an inner extent can be verified.
  bool affordable(std::int64_t inner) const { return whole_ || inner >= 256; }
  /// Returns whether the map explains a sample of the wrong elements.
  bool plausible(const IndexMap&) const;
  /// Applies the map to every element. Returns nothing if it does not hold, or is no more than an accident.
  /// @param parameters  bits that choose this map among the tried ones
  std::optional<Fit> proven(const IndexMap&, double parameters, std::int64_t explained) const;

 private:
  const FailingPair& pair_;
  std::optional<Tensor> whole_;
  double chance_;
};

}  // namespace assay
