#pragma once

#include <span>
#include <string>
#include <vector>

#include "assay/compare/causes/optimizer/gradient_norm.h"
#include "assay/compare/causes/optimizer/reference_rule.h"
#include "assay/compare/causes/optimizer/step_faults.h"

namespace assay {

/// Of one step on the actual side.
struct ClipOfStep {
  std::int64_t step;
  double norm;   ///< that it recorded, or that of its gradients
  double right;  ///< the coefficient that it should have used
  const GradientSquares& squares;
  double u;
  std::span<const KnownSize> sizes;
};

/// A fault of kind "clip", and whose it is.
struct ClipFault {
  std::string name;
  StepFault* fault;
};

/// Says which norm is behind coefficients that are not the reference's min(1, max_norm / (norm + 1e-6)).
void explain_clip(const std::vector<ClipFault>&, const ReferenceRule&, const ClipOfStep&);

}  // namespace assay
