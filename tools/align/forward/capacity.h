#pragma once

#include "assay/align/forward/layer_parts.h"
#include "assay/align/strategies/expert_parallel.h"

namespace assay::align {

/// What of the router's choice is left where an expert takes no more of a rank's tokens than its capacity:
/// weights and experts [tokens, experts], -1 where a token does not go to an expert.
Routed within_capacity(LayerParts&, const std::string& module, const Routed&);

}  // namespace assay::align
