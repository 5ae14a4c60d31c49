#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "assay/align/placement/mesh_placement.h"
#include "assay/golden/tensor.h"

namespace assay::align {

/// What a strategy makes of a model, found by typing every tensor of the step along every axis, without
/// computing it.
struct PlannedParameter {
  Shape whole;
  std::vector<Sharding> shardings;
  std::vector<Axis> summed_over;      ///< axes along which a micro-batch's gradient is partial
  std::vector<std::int64_t> holders;  ///< ranks of pp
  bool has_gradient = false;
};
using Plan = std::map<std::string, PlannedParameter>;

/// Whether the parameter is one tensor for all experts; its ranks lie along etp, ep and edp.
bool is_of_experts(const std::string& parameter);
/// Whether a module, or a parameter, is one of a layer's experts; and the layer: "model.layers.3.mlp".
bool is_at_experts(const std::string& name);
std::string layer_of_experts(const std::string& name);

}  // namespace assay::align
