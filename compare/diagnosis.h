#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "assay/compare/metrics.h"

namespace assay {

/// Why a tensor is not what it should be, as far as the numbers prove it.
struct Diagnosis {
  /// "sign", "factor", "row_factors", "zeros", "flushed", "overflow", "saturated", "precision", "permuted",
  /// "repeated", "transposed", "shifted", "rope_position", "partial_sum", "stale", "added", "attribute",
  /// "input_precision" or "accumulator_precision"; of an optimizer's step "weight_decay", "l2_decay",
  /// "bias_correction", "epsilon", "betas", "learning_rate", "sign", "clip", "norm", "not_updated" or
  /// "stale": stable, for programs.
  std::string kind;
  std::string text;     ///< one sentence with its numbers: "actual = 2 x reference (2 = tp)"
  double residual = 0;  ///< largest error / allowed once it is taken into account: at most 1
};

/// A size that a wrong factor or a cut may come from: {"tp", 2}, {"micro-batches", 4}.
struct KnownSize {
  std::string name;
  std::int64_t size = 1;
};

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
