#pragma once

#include "assay/dumps/dump.h"

namespace assay {

/// The part of a global tensor that a record holds.
struct Box {
  Shape offsets, shape;
  auto operator<=>(const Box&) const = default;
  bool empty() const;
};
/// "[0:4, 8:16]".
std::string to_string(const Box&);

/// Where the record lies in its global tensor: its `offsets`, or torch.chunk's cut (pieces of ceil(n /
/// parts), later ones shorter or empty) of each sharded dimension, nested in the order of the mesh
/// dimensions. Throws Error if the local shape contradicts that.
Box box_of(const Record&, const Mesh&);

}  // namespace assay
