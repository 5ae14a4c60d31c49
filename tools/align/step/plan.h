#pragma once

#include "assay/align/model/batch.h"
#include "assay/align/placement/planned_parameter.h"
#include "assay/align/strategies/pipeline.h"

namespace assay::align {

/// @throws Error  if the strategy contradicts itself, the model or the batch, with the reason
void check_strategy(const Model&, const Batch&, const Parallel&);
/// @throws Error  the same, and if tensors are placed so that an operator cannot take them
Plan make_plan(const Model&, const Batch&, const Parallel&, const Pipeline&, std::int64_t micro_batches);

}  // namespace assay::align
