#include "assay/dumps/layout.h"

#include <fmt/core.h>

#include <algorithm>

#include "assay/golden/error.h"

namespace assay {

bool Box::empty() const {
  return std::find(shape.begin(), shape.end(), 0) != shape.end();
}

std::string to_string(const Box& box) {
  std::string text = "[";
  for (std::size_t d = 0; d < std::min(box.offsets.size(), box.shape.size()); ++d) {
    // Unsigned: this also writes boxes that were found to lie outside everything.
    const auto begin = static_cast<std::uint64_t>(box.offsets[d]);
    text +=
        fmt::format("{}{}:{}", d == 0 ? "" : ", ", begin, begin + static_cast<std::uint64_t>(box.shape[d]));
  }
  return text + "]";
}

Box box_of(const Record& record, const Mesh& mesh) {
  const std::size_t rank = record.global_shape.size();
  Box box{Shape(rank, 0), record.global_shape};
  bool inside = true;
  if (record.offsets) {
    box = {*record.offsets, record.shape};
  } else {
    for (std::size_t m = 0; m < record.placements.size(); ++m) {
      if (record.placements[m].kind != Placement::Kind::shard) continue;
      const auto d = static_cast<std::size_t>(record.placements[m].dim);
      if (d >= rank || m >= mesh.shape.size() || m >= record.mesh_coordinate.size()) {
        inside = false;
        break;
      }
      const std::int64_t extent = box.shape[d], parts = mesh.shape[m];
      const std::int64_t piece = extent / parts + (extent % parts != 0 ? 1 : 0);
      // piece * coordinate <= extent + parts, as piece <= extent / parts + 1: no overflow.
      const std::int64_t begin = std::min(extent, piece * record.mesh_coordinate[m]);
      box.offsets[d] += begin;
      box.shape[d] = std::min(piece, extent - begin);
    }
  }
  inside = inside && box.offsets.size() == rank && box.shape.size() == rank && box.shape == record.shape;
  for (std::size_t d = 0; inside && d < rank; ++d) {
    inside = box.offsets[d] >= 0 && box.offsets[d] <= record.global_shape[d] &&
             box.shape[d] <= record.global_shape[d] - box.offsets[d];
  }
  if (!inside) {
    std::string words;
    for (const Placement& p : record.placements) words += (words.empty() ? "" : ", ") + to_string(p);
    throw Error("{}: rank {} holds shape {} of global shape {}, but placements [{}] put it at {}",
                to_string(record.id), record.rank, to_string(record.shape), to_string(record.global_shape),
                words, to_string(box));
  }
  return box;
}

}  // namespace assay
