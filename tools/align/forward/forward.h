#pragma once

#include <optional>
#include <vector>

#include "assay/align/model/batch.h"
#include "assay/align/model/loss.h"
#include "assay/align/model/stage.h"

namespace assay::align {

struct Forward {
  Value x;  ///< [tokens here, hidden], behind the last layer of the stage
  std::vector<Loss> losses;
};

/// The forward pass (docs/semantics.md A) of a rank. Of the indices "tokens" and "targets" it has those of
/// its part of the sequences; of multi-token prediction at depth k "tokens_k" and "targets_k", rolled left by
/// k. "valid_targets" counts those of the whole micro-batch that are not left out. Where the batch is routed,
/// the choices of the routers are among them.
/// @param batch  of the whole micro-batch
/// @param x      what the stage before gave; of one that embeds, nothing
Forward forward(Machine&, const Model&, const Batch& batch, const Stage&, const std::optional<Value>& x = {});

}  // namespace assay::align
