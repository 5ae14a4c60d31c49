#pragma once

#include <vector>

#include "assay/dumps/record/dump.h"

namespace assay {

/// A part of a global tensor.
struct Box {
  Shape offsets, shape;
  auto operator<=>(const Box&) const = default;
  bool empty() const;
};
/// "[0:4, 8:16]".
std::string to_string(const Box&);

/// Of a dense tensor in C order, in elements. Throws Error if its extents' product overflows.
Shape dense_strides(const Shape&);

/// A box of the global tensor, and the place of its elements in the recorded tensor of a rank.
struct Piece {
  Box box;
  std::int64_t at = 0;  ///< of its first element
  Shape strides;        ///< in elements
};

/// Returns the pieces of the global tensor in a record: none if it is empty, several boxes if its placement
/// separates them. The local box is given by `offsets`, or by the cut of torch.chunk (pieces of ceil(n /
/// parts), later ones shorter or empty) in each sharded dimension, in the order of the mesh dimensions. The
/// padding of `cut` belongs to no piece.
/// @param rows    the global row of each local row, if Record::rows is set; else empty
/// @throws Error  if the local shape contradicts the placement
std::vector<Piece> pieces_of(const Record&, const Mesh&, const std::vector<std::int64_t>& rows = {});

/// Returns the local box, by the placements or by `offsets`. For a box in several pieces: its extents, and
/// the start of the first piece.
Box box_of(const Record&, const Mesh&);

/// Returns the extents of the tensor without padding.
const Shape& shape_of(const Record&);

}  // namespace assay
