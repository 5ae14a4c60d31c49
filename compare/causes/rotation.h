#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "assay/compare/causes/failing_pair.h"

/// Rotary position embeddings, seen from their results.
namespace assay {

/// Which elements of a row are rotated together, and by what: pair j of a head by Delta * base^(-2j/rotated).
struct Rotation {
  std::int64_t head;     ///< a row is a number of heads of this size
  std::int64_t first;    ///< of a head, where its rotated part begins
  std::int64_t rotated;  ///< its size
  bool interleaved;      ///< pairs (2j, 2j+1); else (j, j + rotated/2)
  double base = 0;
  double yarn = 0;  ///< the factor by which YaRN extends the context; 0: not at all

  std::int64_t pairs() const { return rotated / 2; }
  std::pair<std::size_t, std::size_t> pair(std::int64_t j) const {
    const std::int64_t x = first + (interleaved ? 2 * j : j), y = interleaved ? x + 1 : x + rotated / 2;
    return {static_cast<std::size_t>(x), static_cast<std::size_t>(y)};
  }
};

/// Radians per position of each pair.
std::vector<double> frequencies_of(const Rotation&);

using Head = std::span<const double>;
/// Every pair of a has the length that it has in g, as after any rotation.
bool keeps_lengths(const FailingPair&, const Rotation&, Head a, Head g);
/// By how many positions a is g turned further.
std::int64_t delta_of(const Rotation&, std::span<const double> frequencies, Head a, Head g);
/// out = g turned by delta positions.
void rotate(const Rotation&, std::span<const double> frequencies, std::int64_t delta, Head g,
            std::span<double> out);

}  // namespace assay
