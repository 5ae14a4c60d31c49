#pragma once

#include "assay/compare/calls/call_judge.h"
#include "assay/compare/calls/recorded_call.h"
#include "assay/compare/flow/side_values.h"

namespace assay {

/// What a run multiplies the sums of its parameters' gradients by, before the optimizer takes them: one over
/// a count of ranks, micro-batches or tokens, where it averages. 1 if no gradient tells another number.
double scale_of_sums(const SideValues&, const RecordedCalls&, CallJudge&);

}  // namespace assay
