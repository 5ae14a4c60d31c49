#include "assay/align/placement/planned_parameter.h"

#include <string_view>

namespace assay::align {

bool is_of_experts(const std::string& parameter) {
  return parameter.find('*') != std::string::npos;
}

constexpr std::string_view of_experts = ".experts.";

bool is_at_experts(const std::string& name) {
  return name.find(of_experts) != std::string::npos;
}

std::string layer_of_experts(const std::string& name) {
  return name.substr(0, name.find(of_experts));
}

}  // namespace assay::align
