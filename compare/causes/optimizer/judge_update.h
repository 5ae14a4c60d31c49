#pragma once

#include "assay/compare/causes/optimizer/step_faults.h"

namespace assay {

/// Judges the parameter after the step, given the moments after the step on the same side.
void judge_update(const ParameterStep&, const ReferenceRule&, JudgedStep&);

/// Returns whether the update follows another rule, perhaps with another weight decay; if so, sets both
/// faults.
bool takes_rule(const ParameterStep&, const ReferenceRule&, const StepFault& of_rule, JudgedStage& update);

}  // namespace assay
