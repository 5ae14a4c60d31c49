#pragma once

#include <functional>
#include <vector>

#include "assay/compare/calls/call_judge.h"
#include "assay/compare/result/diagnosis.h"

namespace assay {

/// What a call may have been given in the place of some of its operands, and what mistake that is.
struct OtherOperands {
  std::vector<NamedTensor> given;
  Cause cause;
  CauseParameters which;
};
/// Reads the operands that the run recorded elsewhere: it is asked only where nothing else explains a result.
using RecordedOperands = std::function<std::vector<OtherOperands>()>;

/// Returns that the operator was left out, if all that is wrong of a result is one of the operands bit for
/// bit.
std::vector<Diagnosis> left_out(const Call&, const Call::Compared&);

/// Returns the mistake in one operand with which the call makes this result: rounded to a narrower dtype,
/// rolled, read in the order of the transpose; or a recorded tensor of another step, micro-batch or module.
/// A single call; of a sum of several nothing is said.
std::vector<Diagnosis> operand_mistakes(CallJudge&, const Call&, const CallVariant& right,
                                        const Call::Compared&, const RecordedOperands&);

}  // namespace assay
