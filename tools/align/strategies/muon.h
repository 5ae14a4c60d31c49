#pragma once

#include "assay/align/placement/planned_parameter.h"
#include "assay/align/ranks/ranks.h"
#include "assay/align/settings/optimizer_settings.h"

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
