#pragma once

#include <vector>

#include "assay/dumps/layout/layout.h"
#include "assay/golden/tensor_source.h"

namespace assay {

/// The share of one rank, or of the ranks of a sum, in a tensor.
struct RankPart {
  std::vector<Piece> pieces;
  std::vector<Tensor> addends;  ///< the share is their exact sum; all have the same layout
  int rank = 0;
};

/// Throws Error that names the ranks if the parts do not cover `shape` exactly: an element is missing or
/// occurs twice.
void check_cover(const std::vector<RankPart>&, const Shape& shape, const std::string& tensor);

/// Assembles a tensor from parts that cover it exactly, as it is read.
TensorSource assemble(DType, const Shape&, std::vector<RankPart>);

}  // namespace assay
