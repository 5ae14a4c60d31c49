#pragma once

#include <array>
#include <initializer_list>
#include <string>
#include <vector>

#include "assay/align/settings/parallel.h"

namespace assay::align {

/// The dimensions in which ranks lie: tp, cp, dp of what every token meets, and of the same ranks etp, ep,
/// edp of the experts (edp: those that hold the same experts); pp is both.
enum class Axis : std::uint8_t { tp, cp, dp, etp, ep, edp, pp };
inline constexpr std::array dense_axes = {Axis::tp, Axis::cp, Axis::dp};
inline constexpr std::array expert_axes = {Axis::etp, Axis::ep, Axis::edp};
std::string_view name(Axis);

/// Where a rank is (docs/semantics.md D0): rank = tp + t (cp + c (dp + d pp)), the first axis fastest; and
/// over the same ranks of a stage etp + t' (ep + e edp).
class Mesh {
 public:
  Mesh(const Parallel&, int rank);

  int rank() const { return rank_; }
  const Parallel& parallel() const { return parallel_; }
  std::int64_t size(Axis) const;
  std::int64_t coordinate(Axis) const;
  /// The ranks that differ from this one along these axes only, rising.
  std::vector<int> group(std::initializer_list<Axis>) const;
  template <class Axes>
  std::vector<int> group(const Axes&) const;
  std::vector<int> all_ranks() const;
  /// Of the ranks along the axis, in blocks of so many, the block with this one.
  std::vector<int> neighbours(Axis, std::int64_t ranks) const;
  /// Of the ranks of ep, those of the same node, and those with the same place on every node.
  std::vector<int> node_group() const;
  std::vector<int> peer_group() const;
  /// How many ranks of ep share a node: all (alltoall), none (allgather), or as hierarchical dispatch says.
  std::int64_t node_size() const;

 private:
  using Coordinates = std::array<std::int64_t, 7>;
  Coordinates coordinates_of(int rank) const;

  Parallel parallel_;
  int rank_;
  Coordinates at_;
};

}  // namespace assay::align
