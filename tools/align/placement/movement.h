#pragma once

#include <optional>
#include <string>

#include "assay/align/placement/mesh_placement.h"
#include "assay/golden/tensor.h"

namespace assay::align {

/// What the ranks along an axis do with a tensor: a type goes in, another comes out (docs/semantics.md D1).
struct Movement {
  enum class Kind : std::uint8_t {
    copy,            ///< nothing; in backward the sum of the partial gradients: Megatron's f
    all_reduce,      ///< partial to replicated: Megatron's g
    all_gather,      ///< sharded along dim to replicated
    reduce_scatter,  ///< partial to sharded along dim
    split,           ///< replicated to sharded along dim: each rank keeps its piece
    all_to_all,      ///< sharded along dim to sharded along to_dim
    shift,           ///< the piece of the rank before: a turn of a ring
    return_shift,    ///< and of the rank behind
  };
  /// The ranks that take part: all along the axis, or of ep those of a node, or those with the same place on
  /// every node.
  enum class Among : std::uint8_t { axis, node, peers };

  Kind kind;
  Axis axis;
  std::size_t dim = 0, to_dim = 0;
  Among among = Among::axis;
};

/// "all-gather over tp"
std::string to_string(const Movement&);

/// What comes out. Throws Error if that cannot go in.
Placed moved(const Movement&, const Placed&);

/// What has to be done with the gradient of what came out, given how that is placed; nothing: it is already
/// that of what went in.
/// @throws Error  if a gradient of that type cannot be right
std::optional<Movement> adjoint(const Movement&, const Placed& gradient);

/// The extents of what comes out, along an axis of that many ranks. Throws Error if they do not divide.
Shape moved_shape(const Movement&, Shape, std::int64_t ranks);

std::vector<int> ranks_of(const Movement&, const Mesh&);

}  // namespace assay::align
