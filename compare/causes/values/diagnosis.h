#pragma once

#include <string>
#include <vector>

#include "assay/compare/result/diagnosis.h"
#include "assay/compare/result/metrics.h"
#include "assay/golden/tensor_source.h"

namespace assay {

/// Facts about a failing pair besides its elements.
struct DiagnosisContext {
  Allowed allowed;               ///< the allowed error of the rule that judged the pair
  std::vector<KnownSize> sizes;  ///< mesh dimensions, micro-batches, ranks, ..
};

/// Returns the explanations that hold, most specific first.
/// An explanation is a model that computes the actual tensor from the reference. It holds if every element is
/// within the tolerance of the pair, if the failing elements are not explained by accident (a code that names
/// the model is shorter than one that lists them), and if their error falls to a quarter at least. A pair
/// that passes gets no explanation.
/// Needs at most about 64 MB beside the sources.
std::vector<Diagnosis> diagnose(const TensorSource& actual, const TensorSource& reference,
                                const DiagnosisContext&);

/// Describes the place of the elements over tolerance: "rows 48..63 and columns 80..95: 256 of 256 wrong
/// there, none elsewhere". Empty if they lie everywhere or at random. This is a description, not a proof.
std::string error_pattern(const TensorSource& actual, const TensorSource& reference, const DiagnosisContext&);

}  // namespace assay
