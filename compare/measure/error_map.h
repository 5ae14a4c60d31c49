#pragma once

#include "assay/compare/result/error_map.h"
#include "assay/compare/result/metrics.h"
#include "assay/golden/tensor_source.h"

namespace assay {

/// Maps the errors of a pair in a second pass. The pair must be measurable: equal shapes, and dtypes of one
/// kind.
/// The result is the same for any number of threads.
ErrorMap error_map(const TensorSource& actual, const TensorSource& reference, const Allowed&,
                   int threads = 1);

}  // namespace assay
