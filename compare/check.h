#pragma once

#include <filesystem>
#include <vector>

#include "assay/compare/calls/check_options.h"
#include "assay/compare/result/finding.h"

namespace assay {

/// Judges the outputs of operator cases against golden values computed from their inputs.
/// A case that cannot be read is one unreadable finding; the others go on.
Report check(const std::vector<std::filesystem::path>& cases, const CheckOptions&);

}  // namespace assay
