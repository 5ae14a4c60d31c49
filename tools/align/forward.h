#pragma once

#include "assay/align/machine.h"
#include "assay/align/model.h"

namespace assay::align {

/// The tokens of a micro-batch: token l of sequence s is row l sequences + s, Megatron's [s, b, h].
struct Batch {
  std::int64_t sequences = 1, length = 1;
  std::int64_t tokens() const { return sequences * length; }
};

/// The losses of a micro-batch, scalars, each with its weight: `total` is their sum.
struct StepLosses {
  Value total;
  Value cross_entropy;
  std::vector<NamedValue> others = {};  ///< "model.layers.3.mlp.balance", ..
};

/// The forward pass (facts A): tokens and targets are the machine's indices "tokens" and "targets", [tokens];
/// of multi-token prediction at depth k "tokens_k" and "targets_k", rolled left by k.
StepLosses forward(Machine&, const Model&, const Batch&);

}  // namespace assay::align
