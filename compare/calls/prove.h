#pragma once

#include <vector>

#include "assay/compare/calls/case_check.h"

namespace assay {

/// Shows that the gate can fail for this case: golden outputs with a small fault, stored in the dtype of the
/// case's own outputs, must not pass.
/// @return  a finding per output and fault: passed if the gate rejected it, failed if not, ignored where the
///          fault changes no bit of the output
std::vector<Finding> prove(CaseCheck&);

}  // namespace assay
