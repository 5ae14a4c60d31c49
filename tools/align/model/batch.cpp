#include "assay/align/model/batch.h"

#include <fmt/format.h>

#include <array>
#include <string_view>

namespace assay::align {
namespace {

// In the order of the enumerators.
constexpr std::array<std::string_view, 3> of_layer_names = {"choice of ", "other tokens of ", "slots of "};

}  // namespace

std::string name_of(OfLayer what, const std::string& layer) {
  return fmt::format("{}{}", of_layer_names[static_cast<std::size_t>(what)], layer);
}

std::optional<LayerIndices> of_layer(const std::string& name) {
  for (std::size_t k = 0; k < of_layer_names.size(); ++k) {
    if (name.starts_with(of_layer_names[k]))
      return LayerIndices{static_cast<OfLayer>(k), name.substr(of_layer_names[k].size())};
  }
  return std::nullopt;
}

}  // namespace assay::align
