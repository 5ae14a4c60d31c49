#pragma once

#include <functional>

#include "assay/align/settings/parallel.h"
#include "assay/align/tape/tape.h"

namespace assay::align {

/// Which calls and movements of a forward pass are computed again in backward, instead of what they gave
/// being kept.
std::function<bool(const Machine::Node&)> computed_again(const Machine&, Recompute);

/// Lets go of what is computed again in backward.
void forget_for_recompute(Tape&, Recompute);

}  // namespace assay::align
