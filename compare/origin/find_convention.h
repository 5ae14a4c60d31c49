#pragma once

#include <optional>
#include <span>

#include "assay/compare/pairs/pair.h"
#include "assay/compare/result/finding.h"

namespace assay {

/// Nothing where gradients are as large as the reference's, or where those of the parameters are not.
/// @param findings  of the pairs, in execution order, measured as recorded
std::optional<ScaleConvention> scale_convention(std::span<const Finding> findings,
                                                std::span<const Pair> pairs, const Sides&);

}  // namespace assay
