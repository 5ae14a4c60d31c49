#include "assay/compare/report/rule_uses.h"

#include <map>
#include <utility>

namespace assay {

std::vector<RuleUse> rule_uses(const Report& report) {
  std::map<std::string, RuleUse> uses;
  for (const Finding& f : report.findings) {
    if (f.verdict != Verdict::passed) continue;
    RuleUse& use = uses[f.row.empty() ? f.rule : f.row];
    const bool worse = f.ratio > use.worst || use.count == 0;
    ++use.count;
    if (!worse) continue;
    use.worst = f.ratio;
    use.worst_in = f.name;
  }
  std::vector<RuleUse> list;
  for (auto& [rule, use] : uses) {
    use.rule = rule;
    list.push_back(std::move(use));
  }
  return list;
}

}  // namespace assay
