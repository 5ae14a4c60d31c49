#pragma once

#include <vector>

#include "assay/align/model/batch.h"

namespace assay::align {

/// The samples of the micro-batches that the ranks of dp work on at the same time, dealt out anew: for each
/// rank as many.
std::vector<Sequences> redistributed(const std::vector<Sequences>&, const Batch&);

}  // namespace assay::align
