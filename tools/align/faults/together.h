#pragma once

#include <string_view>
#include <vector>

#include "assay/align/faults/fault.h"

namespace assay::align {

/// "F001,F131": several faults at once.
/// @throws Error  for an unknown id, and for one that is named twice
std::vector<const Fault*> faults_named(std::string_view ids);

/// Does each of them wrong, in this order; of a movement the first that has another one.
PlantFault together(const std::vector<const Fault*>&);

}  // namespace assay::align
