#include "assay/align/placement/mesh.h"

#include <algorithm>
#include <iterator>
#include <numeric>

namespace assay::align {
namespace {

std::size_t index(Axis axis) {
  return static_cast<std::size_t>(axis);
}

}  // namespace

std::string_view name(Axis axis) {
  constexpr std::string_view names[] = {"tp", "cp", "dp", "etp", "ep", "edp", "pp"};
  return names[index(axis)];
}

Mesh::Mesh(const Parallel& parallel, int rank)
    : parallel_(parallel), rank_(rank), at_(coordinates_of(rank)) {}

std::int64_t Mesh::size(Axis axis) const {
  const Parallel& p = parallel_;
  switch (axis) {
    case Axis::tp:
      return p.tp;
    case Axis::cp:
      return p.cp;
    case Axis::dp:
      return p.dp;
    case Axis::etp:
      return p.etp;
    case Axis::ep:
      return p.ep;
    case Axis::edp:
      return p.tp * p.cp * p.dp / (p.etp * p.ep);
    case Axis::pp:
      return p.pp;
  }
  return 1;
}

Mesh::Coordinates Mesh::coordinates_of(int rank) const {
  Coordinates at{};
  const auto fill = [&](const auto& axes, std::int64_t left) {
    for (const Axis axis : axes) {
      at[index(axis)] = left % size(axis);
      left /= size(axis);
    }
    return left;
  };
  fill(expert_axes, rank % (size(Axis::etp) * size(Axis::ep) * size(Axis::edp)));
  at[index(Axis::pp)] = fill(dense_axes, rank);
  return at;
}

std::int64_t Mesh::coordinate(Axis axis) const {
  return at_[index(axis)];
}

template <class Axes>
std::vector<int> Mesh::group(const Axes& axes) const {
  const auto varies = [&](Axis axis) { return std::find(axes.begin(), axes.end(), axis) != axes.end(); };
  const auto fixed = [&](const auto& grid, const Coordinates& other) {
    return std::all_of(grid.begin(), grid.end(),
                       [&](Axis axis) { return varies(axis) || other[index(axis)] == at_[index(axis)]; });
  };
  // Axes of one grid at a time: the other one has the same ranks.
  const bool of_experts = std::any_of(expert_axes.begin(), expert_axes.end(), varies);
  std::vector<int> ranks;
  for (int rank = 0; rank < static_cast<int>(parallel_.ranks()); ++rank) {
    const Coordinates other = coordinates_of(rank);
    if ((of_experts ? fixed(expert_axes, other) : fixed(dense_axes, other)) &&
        fixed(std::array{Axis::pp}, other))
      ranks.push_back(rank);
  }
  return ranks;
}
template std::vector<int> Mesh::group(const std::initializer_list<Axis>&) const;
template std::vector<int> Mesh::group(const std::vector<Axis>&) const;
template std::vector<int> Mesh::group(const std::array<Axis, 3>&) const;

std::vector<int> Mesh::group(std::initializer_list<Axis> axes) const {
  return group<std::initializer_list<Axis>>(axes);
}

std::int64_t Mesh::node_size() const {
  if (parallel_.dispatch == Dispatch::alltoall) return parallel_.ep;
  return parallel_.dispatch == Dispatch::allgather ? 1 : parallel_.node;
}

std::vector<int> Mesh::all_ranks() const {
  std::vector<int> all(static_cast<std::size_t>(parallel_.ranks()));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

std::vector<int> Mesh::neighbours(Axis axis, std::int64_t ranks) const {
  const std::vector<int> all = group({axis});
  const std::int64_t first = coordinate(axis) / ranks * ranks;
  return {all.begin() + first, all.begin() + first + ranks};
}

std::vector<int> Mesh::node_group() const {
  return neighbours(Axis::ep, node_size());
}

std::vector<int> Mesh::peer_group() const {
  const std::vector<int> all = group({Axis::ep});
  std::vector<int> peers;
  for (std::int64_t k = coordinate(Axis::ep) % node_size(); k < parallel_.ep; k += node_size())
    peers.push_back(all[static_cast<std::size_t>(k)]);
  return peers;
}

}  // namespace assay::align
