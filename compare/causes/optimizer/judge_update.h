#pragma once

#include "assay/compare/causes/optimizer/step_faults.h"

namespace assay {

/// Judges the parameter after the step, given the side's own moments after it.
void judge_update(const ParameterStep&, const ReferenceRule&, JudgedStep&);

/// Whether the update is that of another rule, perhaps with another weight decay; sets both faults then.
bool takes_rule(const ParameterStep&, const ReferenceRule&, const StepFault& of_rule, JudgedStage& update);

}  // namespace assay
