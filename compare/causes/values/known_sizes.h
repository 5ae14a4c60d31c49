#pragma once

#include <vector>

#include "assay/compare/pairs/pair.h"
#include "assay/compare/result/diagnosis.h"

namespace assay {

/// Returns the sizes of both runs that may explain a wrong factor: mesh dimensions, ranks, micro-batches, and
/// the sizes that the sides state.
std::vector<KnownSize> known_sizes(const Sides&);

}  // namespace assay
