#pragma once

#include "assay/compare/result/finding.h"
#include "assay/compare/rules/policy.h"

namespace assay {

/// Judges by a baseline's own error: another correct result in the dtype of `actual`, held against the same
/// golden values. Fills verdict, rule, reason, metrics and ratio.
/// @param baseline, golden  of the shape of `actual`
void judge_by_baseline(Finding&, const Tensor& actual, const Tensor& golden, const Tensor& baseline,
                       const Policy&, int threads);

}  // namespace assay
