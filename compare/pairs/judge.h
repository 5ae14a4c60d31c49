#pragma once

#include "assay/compare/result/finding.h"
#include "assay/compare/rules/expectation.h"
#include "assay/golden/tensor_source.h"

namespace assay {

/// Whether there is a rule for a pair of these shapes and dtypes (Finding::actual_*, reference_*); else fills
/// verdict, rule and reason.
bool may_judge(Finding&, const Expectation&);

/// Judges a pair in the order of design: shape and dtype, NaN and Inf pattern, bits where they are promised,
/// tolerance per element, trust. Error balance is noted where a pair fails, never decided by. Fills verdict,
/// rule, reason, metrics, ratio, required and the worst values.
void judge(Finding&, const TensorSource& actual, const TensorSource& reference, const Expectation&);

}  // namespace assay
