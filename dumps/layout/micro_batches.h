#pragma once

#include <string_view>

#include "assay/dumps/record/dump.h"

namespace assay {

/// The mesh dimension over which a micro-batch is cut into those of the other side.
inline constexpr std::string_view micro_batch_dim = "micro-batch";

/// Where one side runs in fewer and larger micro-batches what the other runs in more of them (data
/// parallelism that shares a batch out, another accumulation of gradients), the smaller ones become parts of
/// the larger: shards over micro_batch_dim, the outermost cut. Which samples make which
/// micro-batch is read off the recorded input whose rows all are there on both sides, bit for bit: one behind
/// the other, or in turn. What is as large in each is the same, or added up; what neither holds for, and what
/// has no other side to go by, stays unplaced. A dump changes only where all of this holds in every step; it
/// gets a note then.
void join_micro_batches(Dump& actual, Dump& reference);

}  // namespace assay
