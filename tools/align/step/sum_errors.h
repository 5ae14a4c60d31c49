#pragma once

#include <string>
#include <vector>

#include "assay/align/ranks/ranks.h"
#include "assay/align/tape/tape.h"

/// How far sums over ranks and micro-batches are from the exact sums of their terms (docs/semantics.md E).
/// What the terms themselves have from activations and gradients that were rounded otherwise upstream has no
/// such bound.
namespace assay::align {

/// A sum of n terms, each rounded to the dtype in which it is sent.
struct SumError {
  std::int64_t n_extra = 0;  ///< additions behind each other, at most
  std::int64_t n_wire = 0;   ///< roundings to the dtype of the wire
  double u_extra = 0, u_wire = 0;

  /// Times sum |terms|: what (1 + u) .. (1 + u) - 1 is at most (Higham 2002, lemma 3.1).
  double relative() const;
};

/// Of ranks that send tensors of that dtype.
SumError sum_error(DType, std::int64_t ranks, RoundSum);

/// A sum over ranks in the forward or backward pass of a micro-batch.
struct SummingCollective {
  std::string module;
  bool backward = false;
  std::string what;  ///< "all-reduce over tp"
  std::int64_t ranks = 0;
  DType dtype = DType::float32;
  SumError error = {};
};
/// Those of a tape that went backward, in the order of the model.
std::vector<SummingCollective> summing_collectives(const Tape&, RoundSum);

/// A gradient as the optimizer gets it, before clipping. A term of it is what one micro-batch gives on one
/// rank.
struct ReducedGradient {
  Tensor value;
  Tensor terms;         ///< sum |terms|, float64
  SumError error = {};  ///< over the micro-batches and the ranks

  /// @param magnitude  of the gradient of one more micro-batch
  void add(const Tensor& magnitude);
  /// How far an element is from the exact sum of its terms, at most.
  double bound(std::int64_t element) const { return error.relative() * terms.value(element); }
};

/// |x| of each element, in float64.
Tensor magnitudes(const Tensor&);

}  // namespace assay::align
