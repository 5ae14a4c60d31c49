#pragma once

#include <filesystem>
#include <vector>

#include "assay/compare/calls/check_options.h"
#include "assay/compare/result/finding.h"

namespace assay {

/// Judges the outputs of operator cases against golden values, which it computes from the inputs of each
/// case.
/// A case that cannot be read becomes one unreadable finding; the other cases go on.
Report check(const std::vector<std::filesystem::path>& cases, const CheckOptions&);

}  // namespace assay
