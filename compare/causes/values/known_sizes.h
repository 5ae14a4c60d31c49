#pragma once

#include <string_view>
#include <vector>

#include "assay/compare/pairs/pair.h"
#include "assay/compare/result/diagnosis.h"

namespace assay {

/// The name of the size that counts them.
inline constexpr std::string_view micro_batches = "micro-batches";

/// Returns the sizes of both runs that may explain a wrong factor: mesh dimensions, ranks, micro-batches, and
/// the sizes that the sides state.
std::vector<KnownSize> known_sizes(const Sides&);

}  // namespace assay
