#include "assay/align/ladder/ladder_report.h"
namespace assay::align {
std::string to_html(const LadderResult&, const LadderHead&) {
  return "";
}
}  // namespace assay::align
