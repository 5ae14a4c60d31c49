#pragma once

#include <functional>
#include <string>

#include "assay/align/step/initial.h"

namespace assay::align {

/// Which micro-batch of a replay: its number counts over all ranks of dp.
struct MicroBatch {
  std::int64_t step = 0, number = 0;
  auto operator<=>(const MicroBatch&) const = default;
};

/// What a replay is given, whole; what is empty is drawn (initial.h), and experts are chosen by their scores.
/// Ranks ask for it from their threads.
struct Sources {
  std::function<Tensor(const std::string& parameter)> weights;
  std::function<Sequences(const MicroBatch&)> sequences;
  bool are_dealt =
      false;  ///< the sequences, as a replay has recorded them: a strategy deals them out no more
  /// [tokens, top_k]: the experts of each token that the router of this module takes.
  std::function<Tensor(const std::string& module, const MicroBatch&)> routing;
};

}  // namespace assay::align
