#pragma once

#include <cstdint>

#include "assay/align/model/model.h"

namespace assay::align {

/// What of a model is computed in one go: layers [first, end), the embedding before them, the loss behind.
/// The layers of multi-token prediction come with the loss.
struct Stage {
  std::int64_t first = 0, end = 0;
  bool embeds = true, finishes = true;
};
/// The stage of a single device.
inline Stage whole(const Model& model) {
  return {0, model.layers, true, true};
}

}  // namespace assay::align
