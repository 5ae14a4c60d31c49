#pragma once

#include "assay/compare/result/metrics.h"
#include "assay/golden/tensor_source.h"

namespace assay {

struct Partial;

/// Compares two tensors of equal shape, element by element.
/// The result has the same bits for any number of threads and on every instruction set: chunks have a fixed
/// size and are merged in order. Counts and largest errors are those of float64 arithmetic. So are the sums
/// behind means, norms and deviations, with one exception: in large tensors of float32, bfloat16 and float16
/// these sums are within 2^-19 (most within 1e-8), and means and deviations are within 2^-15 of the standard
/// deviation.
/// @param exact_sums  computes every sum exactly and rounds it once; about twenty times slower. Where squares
///                    leave the range of float64, values are scaled and the sums are compensated instead.
/// @throws Error  if the shapes differ, or if only one side holds integers
Metrics measure(const TensorSource& actual, const TensorSource& reference, const Allowed&, int threads = 1,
                bool exact_sums = false);

/// The metrics of a pair that was measured in parts: of those parts, merged in their order.
Metrics metrics_of(Partial total, const TensorSource& actual, const TensorSource& reference);

/// Returns the dtype with fewer significand bits. A pair is measured in the units of this dtype.
DType coarser(DType, DType);

}  // namespace assay
