#pragma once

#include "assay/compare/result/metrics.h"
#include "assay/golden/tensor_source.h"

namespace assay {

/// Compares two tensors of equal shape, element by element.
/// The result has the same bits for any number of threads and on every instruction set: fixed chunks, merged
/// in order. Counts and largest errors are what float64 arithmetic gives. So are the sums behind means, norms
/// and deviations, but for large tensors of float32, bfloat16 and float16: there they are within 2^-19, most
/// within 1e-8; means and deviations within 2^-15 of the standard deviation.
/// @param exact_sums  every sum without error, rounded once; some twenty times slower. Where squares leave
///                    float64's range, values are scaled and the sums compensated instead.
/// @throws Error if the shapes differ, or one side holds integers and the other does not
Metrics measure(const TensorSource& actual, const TensorSource& reference, const Allowed&, int threads = 1,
                bool exact_sums = false);

/// The dtype in whose units a pair is measured: the one with the fewer significand bits.
DType coarser(DType, DType);

}  // namespace assay
