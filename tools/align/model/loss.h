#pragma once

#include <cstdint>
#include <string>

#include "assay/align/placement/machine.h"

namespace assay::align {

/// What of a micro-batch a loss is a mean of.
enum class MeanOf : std::uint8_t { targets, tokens };

/// A scalar that counts so much in the loss of the micro-batch.
struct Loss {
  std::string name;  ///< "cross_entropy", "model.layers.3.mlp.balance", ..
  Value value;
  double weight = 1;
  MeanOf mean_of = MeanOf::targets;
};

}  // namespace assay::align
