#pragma once

#include "assay/compare/expectation.h"
#include "assay/compare/finding.h"
#include "assay/golden/tensor_source.h"

namespace assay {

/// Fills Finding::error_map by the tolerance that judged the pair, if one was asked for and it did not pass.
void map_errors(Finding&, const TensorSource& actual, const TensorSource& reference, const Expectation&);

}  // namespace assay
