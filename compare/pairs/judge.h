#pragma once

#include "assay/compare/result/finding.h"
#include "assay/compare/rules/expectation.h"
#include "assay/golden/tensor_source.h"

namespace assay {

/// Returns whether a rule exists for the shapes and dtypes of the pair (Finding::actual_*, reference_*). If
/// not, fills verdict, rule and reason.
bool may_judge(Finding&, const Expectation&);

/// Judges a pair in the order of the design: shape and dtype, NaN and Inf pattern, promised bits, tolerance
/// per element, trust. The error balance of a failing pair is noted and decides nothing. Fills verdict, rule,
/// reason, metrics, ratio, required and the worst values.
void judge(Finding&, const TensorSource& actual, const TensorSource& reference, const Expectation&);

}  // namespace assay
