#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "assay/compare/result/finding.h"

namespace assay {

/// The exempt tensors of one kind, and the one that is furthest outside its end-to-end rule.
struct ExemptionUse {
  Exemption::Kind kind = Exemption::Kind::amplified_rounding;
  std::int64_t count = 0;
  const Finding* furthest = nullptr;
  /// "exempt: 12 by amplified rounding (its operator is within ..); furthest outside (error/allowed 3.2):
  /// NAME: rms_norm on its own .."
  std::string text() const;
};
/// The kinds in the order of exemption_rows(), without those that exempt nothing. Points into the report.
std::vector<ExemptionUse> exemption_uses(const Report&);

}  // namespace assay
