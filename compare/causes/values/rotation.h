#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "assay/compare/causes/values/failing_pair.h"

/// Rotary position embeddings, recognised in their results.
namespace assay {

/// The pairs of elements that are rotated together, and their angle: Delta * base^(-2j/rotated) for pair j of
/// a head.
struct Rotation {
  std::int64_t head;     ///< the size of a head; a row consists of heads
  std::int64_t first;    ///< the first rotated element of a head
  std::int64_t rotated;  ///< the size of the rotated part
  bool interleaved;      ///< pairs (2j, 2j+1); else (j, j + rotated/2)
  double base = 0;
  double yarn = 0;  ///< the factor by which YaRN extends the context; 0: no YaRN

  std::int64_t pairs() const { return rotated / 2; }
  std::pair<std::size_t, std::size_t> pair(std::int64_t j) const {
    const std::int64_t x = first + (interleaved ? 2 * j : j), y = interleaved ? x + 1 : x + rotated / 2;
    return {static_cast<std::size_t>(x), static_cast<std::size_t>(y)};
  }
};

/// Radians per position of each pair.
std::vector<double> frequencies_of(const Rotation&);

using Head = std::span<const double>;
/// Returns whether every pair of `a` has the length of the same pair of `g`, as after any rotation.
bool keeps_lengths(const FailingPair&, const Rotation&, Head a, Head g);
/// Returns the number of positions by which `a` is rotated further than `g`.
std::int64_t delta_of(const Rotation&, std::span<const double> frequencies, Head a, Head g);
/// Sets `out` to `g`, rotated further by `delta` positions.
void rotate(const Rotation&, std::span<const double> frequencies, std::int64_t delta, Head g,
            std::span<double> out);

}  // namespace assay
