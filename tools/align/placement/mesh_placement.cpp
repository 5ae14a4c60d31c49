#include "assay/align/placement/mesh_placement.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace assay::align {

MeshPlacement MeshPlacement::with(Axis axis, Placed placed) const {
  MeshPlacement changed = *this;
  changed[axis] = placed;
  return changed;
}

std::vector<Axis> MeshPlacement::partial_axes() const {
  std::vector<Axis> axes;
  for (const Axis axis : placed_axes) {
    if ((*this)[axis] == partial) axes.push_back(axis);
  }
  return axes;
}

bool MeshPlacement::is_partial() const {
  return std::ranges::find(at_, partial) != at_.end();
}

std::string to_string(const Placed& placed) {
  if (placed == replicated) return "replicated";
  return placed == partial ? "partial" : fmt::format("sharded along dim {}", placed.dim);
}

std::string to_string(const MeshPlacement& placement) {
  std::vector<std::string> all;
  for (const Axis axis : placed_axes) {
    if (placement[axis] != replicated)
      all.push_back(fmt::format("{} over {}", to_string(placement[axis]), name(axis)));
  }
  return all.empty() ? "replicated" : fmt::format("{}", fmt::join(all, ", "));
}

std::vector<Sharding> shardings_of(const MeshPlacement& placement) {
  std::vector<Sharding> all;
  for (const Axis axis : placed_axes) {
    if (placement[axis] != replicated) all.push_back({axis, placement[axis]});
  }
  return all;
}

}  // namespace assay::align
