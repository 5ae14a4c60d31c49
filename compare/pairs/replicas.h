#pragma once

#include <string>
#include <string_view>

#include "assay/compare/result/finding.h"
#include "assay/compare/rules/expectation.h"
#include "assay/dumps/layout/merge.h"
#include "assay/golden/tensor_source.h"

namespace assay {

/// Judges copies that disagree, whatever the tolerance says about the judged copy. If their exact sum passes,
/// the finding says that an all-reduce is missing.
/// @param reference  nullptr: the reference has no ranks
/// @param judged_by  the tensor that `actual` was judged by
void judge_replicas(Finding&, const Merged& actual, const Merged* reference, const TensorSource& judged_by,
                    const Expectation&);

/// "actual: ranks 0 and 1 (dp) should hold the same bits; ..".
std::string to_string(const ReplicaMismatch&, std::string_view side);

}  // namespace assay
