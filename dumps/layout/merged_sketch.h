#pragma once

#include <optional>
#include <vector>

#include "assay/dumps/layout/merge.h"
#include "assay/golden/sketch.h"

namespace assay {

/// The sketch of what a record holds, at its place in the whole tensor. Padding is not in it.
Sketch sketch_of_record(const Dump&, std::size_t index, const SketchSpec&);

/// Whether every rank's part of the tensor was recorded as a sketch.
bool has_sketches(const Dump&, const LogicalTensor&);

/// A tensor of all ranks, sketched.
struct MergedSketch {
  Sketch sketch;
  /// Copies whose bits differ: where, and by how much, is not known.
  std::vector<ReplicaMismatch> replicas;
  std::optional<Sketch> sum_of_replicas;  ///< as Merged has it
};

/// Puts the sketches of a tensor's parts together, as merge does with their values: shards must cover it
/// exactly, replicas are compared by their fingerprints, partial sums are added, unrounded.
/// @param spec    of a tensor whose values were recorded: it is sketched here
/// @throws Error  as merge does, and for sketches that were made of another whole tensor
MergedSketch merge_sketches(const Dump&, const LogicalTensor&, const SketchSpec& spec);

}  // namespace assay
