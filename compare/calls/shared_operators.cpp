#include "assay/compare/calls/shared_operators.h"

#include <map>

#include "assay/compare/calls/call_names.h"

namespace assay {

void share_operators(const std::vector<LogicalTensor>& reference, std::vector<LogicalTensor>& actual) {
  std::map<Identity, const LogicalTensor*> by_id;
  for (const LogicalTensor& t : reference) {
    if (!t.op.empty() && t.id.phase != Phase::optimizer) by_id.emplace(t.id, &t);
  }
  for (LogicalTensor& t : actual) {
    const auto twin = by_id.find(t.id);
    if (twin == by_id.end() || t.op.empty() || t.op == twin->second->op) continue;
    const Operator *own = recorded_operator(t.op), *wanted = recorded_operator(twin->second->op);
    if (own != wanted ? wanted != nullptr : own == nullptr) t.op = twin->second->op;
  }
}

}  // namespace assay
