#include "assay/align/placement/token_rows.h"

namespace assay::align {

bool is_ring(const Mesh& mesh) {
  return mesh.size(Axis::cp) > 1 && mesh.parallel().context == ContextMode::ring;
}

std::vector<std::int64_t> positions_of(const Mesh& mesh, std::int64_t length, std::int64_t rank_of_cp) {
  std::vector<std::int64_t> positions;
  const auto append = [&](std::int64_t chunk, std::int64_t chunks) {
    const std::int64_t size = length / chunks;
    for (std::int64_t i = 0; i < size; ++i) positions.push_back(chunk * size + i);
  };
  const std::int64_t c = mesh.size(Axis::cp);
  if (is_ring(mesh)) {
    append(rank_of_cp, 2 * c);
    append(2 * c - 1 - rank_of_cp, 2 * c);
  } else {
    append(rank_of_cp, c);
  }
  return positions;
}

std::vector<std::int64_t> positions_of(const Mesh& mesh, std::int64_t length) {
  return positions_of(mesh, length, mesh.coordinate(Axis::cp));
}

std::vector<std::int64_t> token_rows(const Mesh& mesh, std::int64_t sequences, std::int64_t length) {
  std::vector<std::int64_t> rows;
  for (const std::int64_t l : positions_of(mesh, length)) {
    for (std::int64_t s = 0; s < sequences; ++s) rows.push_back(l * sequences + s);
  }
  return rows;
}

}  // namespace assay::align
