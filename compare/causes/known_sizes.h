#pragma once

#include <vector>

#include "assay/compare/pairs/pair.h"
#include "assay/compare/result/diagnosis.h"

namespace assay {

/// Sizes of both runs that a wrong factor may come from: mesh dimensions, ranks, micro-batches, and those
/// that the sides state.
std::vector<KnownSize> known_sizes(const Sides&);

}  // namespace assay
