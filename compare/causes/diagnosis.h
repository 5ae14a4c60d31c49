#pragma once

#include <string>
#include <vector>

#include "assay/compare/result/diagnosis.h"
#include "assay/compare/result/metrics.h"
#include "assay/golden/tensor_source.h"

namespace assay {

/// What is known about a failing pair besides its elements.
struct DiagnosisContext {
  Allowed allowed;               ///< as in the rule that judged the pair
  std::vector<KnownSize> sizes;  ///< mesh dimensions, micro-batches, ranks, ..
};

/// The explanations that hold, most specific first; empty if none does. Each is a model of what the actual
/// tensor is given the reference: every element is within the tolerance of the pair under it, elements that
/// fail without it are not explained by accident (a code that names the model is shorter than one that lists
/// them), and their error falls to a quarter at least. A pair that passes needs none and gets none.
/// Memory beside the sources: at most some 64 MB.
std::vector<Diagnosis> diagnose(const TensorSource& actual, const TensorSource& reference,
                                const DiagnosisContext&);

/// Where the elements over tolerance lie, if that says something: "rows 48..63 and columns 80..95: 256 of 256
/// wrong there, none elsewhere". A description, not a proof; empty if they lie everywhere or at random.
std::string error_pattern(const TensorSource& actual, const TensorSource& reference, const DiagnosisContext&);

}  // namespace assay
