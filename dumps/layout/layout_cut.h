#pragma once

#include <string>
#include <vector>

#include "assay/dumps/layout/layout_rules.h"

namespace assay {

/// Gives every record that matches a layout rule its place in the whole tensor.
void cut_by_rules(Dump&, const std::vector<LayoutRules::Layout>&);

}  // namespace assay
