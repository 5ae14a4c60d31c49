#pragma once

#include <string>
#include <vector>

#include "assay/compare/result/finding.h"
#include "assay/dumps/record/dump.h"

namespace assay::align {

/// One of the things that must be equal before any numbers mean something.
struct ConfigurationCheck {
  std::string what;  ///< "vocabulary", "architecture", ..
  bool passed = true;
  std::string found;      ///< what was equal, or what was not
  bool differs = false;   ///< it passed all the same: it may
  bool accepted = false;  ///< it may, as the user says: still named on the screen
};

/// Of two dumps of the same work (TeleChat3-MoE report, section 3.2: vocabulary, architecture,
/// hyper-parameters, initial weights, mixed precision, data): what their manifests say first, then what was
/// recorded of the first step. What neither side recorded is not among them.
/// @param report  of the two
std::vector<ConfigurationCheck> check_configuration(const Report& report, const Dump& subject,
                                                    const Dump& reference);

}  // namespace assay::align
