#pragma once

#include <vector>

#include "assay/compare/causes/nearby_tensors.h"
#include "assay/compare/causes/sketch_fit.h"
#include "assay/compare/pairs/pair.h"
#include "assay/compare/result/finding.h"

namespace assay {

/// Explains failing pairs that were compared by sketches, as far as a cause is linear: a sum over ranks, a
/// factor, another step's tensor, a term that was added, a decay, micro-batches that count otherwise, a
/// parameter that was not updated. What changes the order of elements, or is no multiple, is not seen.
class SketchCauses {
 public:
  /// @param sides  must outlive this
  SketchCauses(const Sides& sides, std::vector<KnownSize> sizes);
  /// Adds what is proved to the finding's diagnoses, and where the error lies to its notes. A proved mistake
  /// fails a tensor whose rule allows more than the tensor is.
  void explain(Finding&, const Pair&) const;

 private:
  void explain_float(Finding&, const Pair&, const SketchedPair&) const;

  const Sides& sides_;
  NearbyTensors reference_, actual_;
  std::vector<KnownSize> sizes_;
};

}  // namespace assay
