#pragma once

#include <optional>
#include <vector>

#include "assay/align/forward/forward.h"
#include "assay/align/placement/shape_machine.h"
#include "assay/align/strategies/pipeline.h"

namespace assay::align {

/// A pipeline stage on one rank, forward and backward, typed and not computed.
struct ShapePass {
  ShapePass(const Model&, const Batch&, const Mesh&, const Stage&);

  ShapeMachine machine;
  std::vector<std::optional<MeshPlacement>> gradients;  ///< by Value::id; nothing: it has none
};

}  // namespace assay::align
