#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "assay/compare/result/finding.h"

namespace assay {

/// A layer of which the actual side has no value in the forward pass of a step, though it has others': it was
/// not computed. What comes after it is wrong for that.
struct MissingLayer {
  std::size_t first = 0;        ///< the finding of its first tensor
  std::int64_t count = 0;       ///< of its tensors in the forward pass
  std::string module;           ///< "model.layers.3"
  bool has_parameters = false;  ///< recorded on the actual side: it is there, and was to be recorded
};

Diagnosis diagnosis(const MissingLayer&);

/// In execution order.
std::vector<MissingLayer> missing_layers(const std::vector<Finding>&, std::int64_t step);

/// Fails the first tensor of each layer that is missing though its parameters are there, in the first step
/// that lacks one; the other steps lack it for the same reason.
void fail_missing_layers(std::vector<Finding>&);
bool is_missing_layer(const Finding&);

}  // namespace assay
