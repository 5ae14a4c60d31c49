#pragma once

#include "assay/compare/result/finding.h"
#include "assay/compare/rules/expectation.h"
#include "assay/golden/tensor_source.h"

namespace assay {

/// Fills Finding::error_map by the tolerance that judged the pair, if the caller asked for it and the pair
/// did not pass.
void map_errors(Finding&, const TensorSource& actual, const TensorSource& reference, const Expectation&);

}  // namespace assay
