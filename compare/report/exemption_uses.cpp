#include "assay/compare/report/exemption_uses.h"

#include <fmt/format.h>

#include "assay/compare/result/printable.h"

namespace assay {

std::string ExemptionUse::text() const {
  const ExemptionRow& row = row_for(kind);
  return fmt::format("exempt: {} by {} ({}); furthest outside (error/allowed {:.3g}): {}: {}", grouped(count),
                     row.name, row.meaning, furthest->ratio, furthest->name, furthest->exemption->source);
}

std::vector<ExemptionUse> exemption_uses(const Report& report) {
  std::vector<ExemptionUse> uses;
  for (const ExemptionRow& row : exemption_rows()) {
    ExemptionUse use;
    use.kind = row.kind;
    for (const Finding& f : report.findings) {
      if (f.verdict != Verdict::exempt || f.exemption->kind != row.kind) continue;
      ++use.count;
      if (use.furthest == nullptr || f.ratio > use.furthest->ratio) use.furthest = &f;
    }
    if (use.count > 0) uses.push_back(use);
  }
  return uses;
}

}  // namespace assay
