#include "assay/compare/report/report.h"

namespace assay {

std::span<const ReportFormat<Report>> report_formats() {
  static constexpr ReportFormat<Report> formats[] = {
      {"json", "write the report as JSON to this file; - is standard output", to_json},
      {"jsonl", "the same as JSON Lines, one finding a line", to_jsonl},
      {"csv", "one row per tensor", to_csv},
      {"html", "one page with pictures, filters and all tensors; needs no network", to_html, true},
      {"junit", "JUnit XML, one test case per step, phase and module", to_junit},
      {"markdown", "a summary in Markdown", to_markdown},
  };
  return formats;
}

}  // namespace assay
