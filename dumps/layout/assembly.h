#pragma once

#include <vector>

#include "assay/dumps/layout/layout.h"
#include "assay/golden/tensor_source.h"

namespace assay {

/// What one rank, or the ranks of a sum, hold of a tensor.
struct Share {
  std::vector<Piece> pieces;
  std::vector<Tensor> addends;  ///< their exact sum counts; all laid out alike
  int rank = 0;
};

/// Throws Error that names the ranks unless the parts cover `shape` exactly: no element is missing, none is
/// there twice.
void check_cover(const std::vector<Share>&, const Shape& shape, const std::string& tensor);

/// The tensor that parts which cover it exactly make up, put together as it is read.
TensorSource assemble(DType, const Shape&, std::vector<Share>);

}  // namespace assay
