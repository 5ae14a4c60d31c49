#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "assay/dumps/io/json.h"
#include "assay/dumps/record/dump.h"

namespace assay {

/// The layout of a tensor over its ranks, as its entry in dump.json describes it.
struct RecordedLayout {
  Mesh mesh;
  std::vector<std::int64_t> ranks;    ///< of the mesh, in C order; empty: 0, 1, 2, ..
  std::vector<Placement> placements;  ///< one per mesh dimension
  /// For each tensor dimension, the mesh dimensions that cut it, the outermost cut first.
  std::vector<std::vector<std::size_t>> cuts;
};

/// From a DTensor's device_mesh and placements, or MindSpore's layout (Device Matrix, Tensor Map, Partial,
/// Rank List); nothing if the entry has neither. Throws Error ("<where>: ..") if it cannot be used.
std::optional<RecordedLayout> parse_layout(const Json& leaf, std::size_t tensor_dims, std::string_view where);

/// The layouts of a dump's records.
class Layouts {
 public:
  /// The record that will be Dump::records[record].
  void add(std::size_t record, RecordedLayout);
  bool empty() const { return of_.empty(); }
  /// Gives each record its place in the whole tensor. No recorder writes the global shape: it follows from
  /// the parts. If one mesh has all ranks, it becomes Dump::mesh; if tensors lie on different meshes, their
  /// parts get offsets, and the meshes become a note. Returns (record, reason) of the records without a
  /// place.
  std::vector<std::pair<std::size_t, std::string>> place(Dump&) const;

 private:
  std::vector<std::pair<std::size_t, RecordedLayout>> of_;
};

}  // namespace assay
