#pragma once

#include <vector>

#include "assay/compare/causes/optimizer/step_faults.h"

namespace assay {

/// One program steps all parameters. An alternative rule that most parameters or moments show is therefore
/// tried on all that fail; the explanations of single parameters, found on fewer elements, give way.
/// @param judged  one entry per entry of recorded.steps
void agree(const RecordedSteps& recorded, const ReferenceRule&, std::vector<JudgedStep>& judged);

}  // namespace assay
