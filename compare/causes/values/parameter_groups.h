#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "assay/golden/tensor.h"

namespace assay {

struct NamedShape {
  std::string name;
  Shape shape;
};

/// Parameters that programs treat alike: vectors, matrices, experts, routers, embeddings, those of one kind
/// of module.
struct ParameterGroup {
  std::string text;  ///< "the 1-D parameters", "the experts", "all input_layernorm"
  std::set<std::string> members;
};
/// Groups of more than one and less than all, the most general first.
std::vector<ParameterGroup> parameter_groups(const std::vector<NamedShape>& all);

/// "all 83 parameters", "the 1-D parameters (29 of 83)", "model.norm.weight", "12 of 83 parameters: .., ..".
std::string describe_parameters(const std::set<std::string>& some, const std::vector<NamedShape>& all);

}  // namespace assay
