#pragma once

#include "assay/align/ranks/ranks.h"
#include "assay/align/settings/optimizer_settings.h"
#include "assay/align/step/plan.h"

namespace assay::align {

/// The matrices that Muon orthogonalizes, of the piece of a parameter that a rank has.
class MuonMatrices {
 public:
  MuonMatrices(const Ranks&, const PlannedParameter&, MuonMatrix);

  Tensor gather(const Tensor& piece, const std::string& name) const;
  /// This rank's piece of them.
  Tensor piece(const Tensor& matrices) const;

 private:
  const Ranks& ranks_;
  std::vector<Sharding> cuts_;
};

}  // namespace assay::align
