#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "assay/align/placement/mesh.h"

namespace assay::align {

/// What the ranks along one axis hold of a tensor: all of it each, its pieces along dimension `dim`, or
/// tensors of its shape whose sum it is (DTensor's Replicate, Shard, Partial).
struct Placed {
  enum class How : std::uint8_t { replicated, sharded, partial };
  How how = How::replicated;
  std::size_t dim = 0;
  bool operator==(const Placed&) const = default;
};
inline constexpr Placed replicated = {};
inline constexpr Placed partial = {Placed::How::partial, 0};
constexpr Placed sharded(std::size_t dim) {
  return {Placed::How::sharded, dim};
}

/// A tensor's type: how it is placed along every axis but pp, and dp, along which ranks work on other
/// micro-batches: other tensors, not pieces of one.
class MeshPlacement {
 public:
  Placed& operator[](Axis axis) { return at_[static_cast<std::size_t>(axis)]; }
  const Placed& operator[](Axis axis) const { return at_[static_cast<std::size_t>(axis)]; }
  MeshPlacement with(Axis, Placed) const;
  bool is_replicated() const { return *this == MeshPlacement(); }
  bool is_partial() const;
  std::vector<Axis> partial_axes() const;
  bool operator==(const MeshPlacement&) const = default;

 private:
  std::array<Placed, 7> at_ = {};
};
inline constexpr std::array placed_axes = {Axis::tp, Axis::cp, Axis::etp, Axis::ep, Axis::edp};

/// "replicated", "sharded along dim 0 over cp, partial over tp"
std::string to_string(const MeshPlacement&);
std::string to_string(const Placed&);

/// One axis of a placement that is known beforehand: a parameter's, or where data and not shapes say it.
struct Sharding {
  Axis axis;
  Placed placed;
};

/// Of every axis along which it is not replicated.
std::vector<Sharding> shardings_of(const MeshPlacement&);

}  // namespace assay::align
