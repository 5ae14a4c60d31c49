#pragma once

#include <string>
#include <vector>

#include "assay/align/ladder/rung.h"
#include "assay/align/placement/movement.h"

namespace assay::align {

/// A collective of a strategy: who talks to whom about what.
struct Traffic {
  std::string module;  ///< that it belongs to; of a gradient the parameter
  std::string what;    ///< "all-reduce", "reduce-scatter", "sum of the gradient", "send"
  Axis axis;
  std::vector<std::vector<int>> groups;  ///< of ranks
  bool backward = false;
};

/// Every kind of collective of a module, forward and backward, the sums of gradients, and what stages send to
/// each other; each once. Nothing of a model that is not known.
std::vector<Traffic> traffic_of(const Rung&);

/// The collectives that a wrong tensor of this name may have come through, nearest first: those of its
/// module, and for a parameter's gradient its sum.
std::vector<Traffic> behind(const std::vector<Traffic>&, const std::string& module,
                            bool is_gradient_of_parameter, bool backward);

}  // namespace assay::align
