#pragma once

#include <vector>

#include "assay/compare/calls/call_judge.h"
#include "assay/compare/calls/case_check.h"
#include "assay/compare/causes/operand_mistakes.h"
#include "assay/compare/result/diagnosis.h"
#include "assay/compare/result/finding.h"

namespace assay {

/// Returns the mistakes that make this result of a call: other attributes, other weights of micro-batches, a
/// narrower arithmetic; where none does and the judge's standard is the whole, what its values have in common
/// against the golden ones. Empty for a result that is within the bound.
/// @param right     the attributes of a right call
/// @param compared  the result against the golden one of the right call
/// @param sizes     possible factors
/// @param recorded  operands of elsewhere
std::vector<Diagnosis> explain_call(CallJudge&, const Call&, const CallVariant& right, const Call::Compared&,
                                    const std::vector<KnownSize>& sizes,
                                    const RecordedOperands& recorded = {});

/// Says what makes an output of a case that failed, in a minute at most and mostly at once: other attributes,
/// else a note of the narrow dtype in which the kernel may keep results between steps, else its other
/// diagnoses and, if they say no more, a note of how the device may add.
void explain_output(Finding&, CaseCheck&, const CaseOutput&, const TensorSource& actual);

}  // namespace assay
