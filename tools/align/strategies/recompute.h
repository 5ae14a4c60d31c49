#pragma once

#include "assay/align/settings/parallel.h"
#include "assay/align/tape/tape.h"

namespace assay::align {

/// Lets go of what is computed again in backward.
void forget_for_recompute(Tape&, Recompute);

}  // namespace assay::align
