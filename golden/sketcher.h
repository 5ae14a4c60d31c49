#pragma once

#include <memory>

#include "assay/golden/sketch.h"
#include "assay/golden/tensor_source.h"

namespace assay {

/// Makes the sketch of a tensor from its boxes, wherever they lie. The loops take the threads of ThreadScope;
/// their number changes no bit.
class Sketcher {
 public:
  /// @param shape  of the whole tensor
  /// @param prints_only  no values: Sketch::fingerprint, square, peak and counts alone
  Sketcher(const Shape& shape, const SketchSpec&, bool prints_only = false);

  /// Takes a box in, whose first element lies at `offsets`. Boxes must not overlap: nobody checks it here.
  /// @throws Error  if it reaches out of the tensor
  void add(const TensorSource& box, const Shape& offsets);
  const Sketch& result() const { return sketch_; }

 private:
  struct Columns;
  class Rows;
  const Columns& columns_of(std::int64_t first, std::int64_t count);
  std::int64_t row_of(std::int64_t row, const Shape& box, const Shape& offsets) const;

  Sketch sketch_;
  MatrixExtents extents_;
  bool prints_only_;
  std::shared_ptr<Columns> columns_;  ///< the last ones: boxes often have the same
};

/// Of a whole tensor, with the blocks that spec_for gives it.
Sketch sketch_of(const TensorSource&, const SketchSpec& = {});

/// Sketch::fingerprint of a whole tensor.
std::uint64_t fingerprint_of_bits(const TensorSource&);

}  // namespace assay
