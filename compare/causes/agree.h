#pragma once

#include <vector>

#include "assay/compare/causes/optimizer/step_faults.h"

namespace assay {

/// All parameters are stepped by one program: an alternative rule that most parameters show, or the moments,
/// is asked of all that fail. What single parameters seemed to show instead, with fewer elements, gives way.
/// @param judged  of recorded.steps
void agree(const RecordedSteps& recorded, const ReferenceRule&, std::vector<JudgedStep>& judged);

}  // namespace assay
