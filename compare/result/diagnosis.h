#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace assay {

/// The cause of a difference, as far as the numbers prove it.
struct Diagnosis {
  /// "sign", "factor", "row_factors", "zeros", "flushed", "overflow", "saturated", "precision", "permuted",
  /// "repeated", "transposed", "shifted", "rope_position", "partial_sum", "stale", "added", "attribute",
  /// "input_precision" or "accumulator_precision"; of an optimizer's step "weight_decay", "l2_decay",
  /// "bias_correction", "epsilon", "betas", "learning_rate", "sign", "clip", "norm", "not_updated" or
  /// "stale": stable, for programs.
  std::string kind;
  std::string text;     ///< one sentence with its numbers: "actual = 2 x reference (2 = tp)"
  double residual = 0;  ///< largest error / allowed that this cause leaves: at most 1
};

/// A size that may explain a wrong factor or a wrong cut: {"tp", 2}, {"micro-batches", 4}.
struct KnownSize {
  std::string name;
  std::int64_t size = 1;
};

}  // namespace assay
