#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>

namespace assay {

/// The judgement of one result of an optimizer: the optimizer of the reference is applied to the recorded
/// gradient, states and parameter of the actual side.
struct StepOrigin {
  double ratio = 0;  ///< largest error / allowed: at most 1 if this side took the same step
  std::string how;
  std::optional<std::size_t> root;  ///< the finding that reports the same mistake
  bool is_right() const { return !root && ratio <= 1; }
};
using StepOrigins = std::map<std::size_t, StepOrigin>;  ///< by finding

}  // namespace assay
