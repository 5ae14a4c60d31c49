#pragma once

#include <span>
#include <vector>

#include "assay/operators/engine/golden.h"

/// Exact sums that may be split over ranks and micro-batches: sums of their parts have the bits of the whole.
/// An unrounded tensor is float64 [parts, shape...], parts >= 1; its numbers are the sums of their parts. In
/// what is returned here each part is the float64 nearest to what the ones before it leave, and -0 stands
/// for none: equal tensors have equal bits.
namespace assay {

/// As compute_golden at Level::fp64, but sums are exact whatever the order of their terms, which are computed
/// in float64 (products of two float32 are exact), and the outputs are unrounded. Operators of which no sum
/// continues elsewhere (Operator::run_unrounded) round each of their sums once to float64: parts is 1.
/// Role::output_index as there.
/// @throws Error  as compute_golden, and for a sum of finite terms beyond float64
std::vector<NamedTensor> compute_exact(const Operator&, std::span<const NamedTensor> inputs,
                                       const Attributes&);

/// The exact sum of unrounded tensors of the same shape; their numbers of parts may differ.
/// @throws Error  if there are none, they are no unrounded tensors, or their shapes differ
Tensor add_unrounded(std::span<const Tensor>);

/// Each number rounded once, to nearest even, and the dimension of the parts gone.
/// @throws Error  if it is no unrounded tensor
Tensor round_unrounded(const Tensor&, DType);

/// Any tensor as an unrounded one of one part.
Tensor unrounded(const Tensor&);

}  // namespace assay
