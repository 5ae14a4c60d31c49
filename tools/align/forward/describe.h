#pragma once

#include <string>

#include "assay/align/forward/architecture.h"
#include "assay/compare/rules/policy.h"

namespace assay::align {

struct Description {
  Batch batch;
  Policy policy;                  ///< of the tolerances that are listed
  DType dtype = DType::bfloat16;  ///< of the outputs
};

/// The model in words, its parameters, and for every operator of the forward pass and its backward the
/// accumulation counts and what the policy would allow. Layers that are alike are told once.
std::string describe(const Model&, const Description&);

}  // namespace assay::align
