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

/// A box of the global tensor, and where its elements lie in the tensor that a rank recorded.
struct Piece {
  Box box;
  std::int64_t at = 0;  ///< of its first element
  Shape strides;        ///< in elements
};

/// What the record holds of its global tensor: none if it is empty, several boxes if its placement takes it
/// apart. Its local box is given by `offsets`, or by torch.chunk's cut (pieces of ceil(n / parts), later ones
/// shorter or empty) of each sharded dimension, in the order of the mesh dimensions. What lies in `cut`'s
/// padding belongs to no piece.
/// @param rows    the row of the global tensor for each local row, where Record::rows says so; else empty
/// @throws Error  if the local shape contradicts that
std::vector<Piece> pieces_of(const Record&, const Mesh&, const std::vector<std::int64_t>& rows = {});

/// The local box, by the placements or as recorded beside `offsets`; of one in several pieces its extents,
/// and where the first starts.
Box box_of(const Record&, const Mesh&);

/// Extents of the tensor, without padding.
const Shape& shape_of(const Record&);

}  // namespace assay
