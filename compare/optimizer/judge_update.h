#pragma once

#include "assay/compare/optimizer/step_faults.h"

namespace assay {

/// Judges the parameter after the step, given the side's own moments after it.
void judge_update(const ParameterStep&, const ReferenceRule&, JudgedStep&);

}  // namespace assay
