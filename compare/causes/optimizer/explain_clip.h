#pragma once

#include <span>
#include <string>
#include <vector>

#include "assay/compare/causes/optimizer/clip_limit.h"
#include "assay/compare/causes/optimizer/gradient_norm.h"
#include "assay/compare/causes/optimizer/step_mistakes.h"

namespace assay {

/// One step of the actual side.
struct ClipOfStep {
  double norm;             ///< the recorded norm, or that of the recorded gradients
  double norm_error;       ///< relative
  bool has_recorded_norm;  ///< which is right, or a fault of its own
  double right;            ///< the right coefficient
  const GradientSquares& squares;
  DType arithmetic;
  std::span<const KnownSize> sizes;
};

/// A Cause::clip with its coefficient, and the parameter that shows it.
struct ClipFault {
  std::string name;
  StepFault* fault;
  double error;  ///< of the coefficient, relative
};

/// Explains the norm behind coefficients that differ from min(1, max_norm / (norm + 1e-6)) of the reference.
void explain_clip(const std::vector<ClipFault>&, const ClipLimit&, const ClipOfStep&);

}  // namespace assay
