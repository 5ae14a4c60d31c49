#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "assay/compare/result/finding.h"

namespace assay {

/// How many tensors passed by a rule, and how near the worst of them came to its limit.
struct RuleUse {
  std::string rule;
  std::int64_t count = 0;
  double worst = 0;
  std::string worst_in;
};
std::vector<RuleUse> rule_uses(const Report&);

}  // namespace assay
