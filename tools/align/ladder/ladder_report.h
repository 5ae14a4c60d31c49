#pragma once

#include <string>

#include "assay/align/ladder/walk.h"

namespace assay::align {

/// What the reports of an alignment say beside its result.
struct LadderHead {
  std::string command;             ///< as it was given
  std::string subject, reference;  ///< Provider::text
  std::string model, target, precision;
  std::string folder;  ///< of dumps and outputs
};

/// The stages and what they cost, and runs nothing.
std::string plan_text(const LadderPlan&, const LadderHead&);

/// One line for a stage.
std::string rung_line(const RungResult&);
/// The divergences with their evidence, and the last line that counts.
std::string ladder_text(const LadderResult&, const LadderHead&);

}  // namespace assay::align
