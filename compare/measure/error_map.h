#pragma once

#include "assay/compare/result/error_map.h"
#include "assay/compare/result/metrics.h"
#include "assay/golden/tensor_source.h"

namespace assay {

/// A second pass over a pair that can be measured: shapes are equal, and the kinds of dtype.
/// The result is the same for any number of threads.
ErrorMap error_map(const TensorSource& actual, const TensorSource& reference, const Allowed&,
                   int threads = 1);

}  // namespace assay
