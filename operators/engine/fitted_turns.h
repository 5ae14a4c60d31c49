#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "assay/golden/tensor.h"

namespace assay {

/// How far each pair of channels turns from one position to the next, as a recorded rotation shows it.
struct FittedTurns {
  std::vector<double> frequencies;  ///< radians, in (-pi, pi]
  std::vector<double> errors;       ///< how far each may be from what the recorded kernel had
  double magnitude = 1;             ///< of the result against that of the input
};

/// Where the channels of a rotation lie.
struct TurnedChannels {
  std::size_t sequence_dim;
  std::int64_t rotated;  ///< the leading channels that turn, even
  bool half;             ///< pairs are (i, i + rotated / 2), else (2i, 2i + 1)
};

/// Fits one frequency for each pair of channels to all heads and positions (arXiv:2104.09864 eq. 34).
/// @param positions  of the tokens, one after the other without a gap
/// @return nothing where no frequencies make the recording, and where it has too few tokens to show them
std::optional<FittedTurns> fitted_turns(const Tensor& x, const Tensor& y, const TurnedChannels&,
                                        const std::vector<std::int64_t>& positions);

/// The numbers of leading channels that may turn: all, and as many as differ.
std::vector<std::int64_t> rotated_channels(const Tensor& x, const Tensor& y);

}  // namespace assay
