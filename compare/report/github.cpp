#include <fmt/format.h>

#include "assay/compare/report/exemption_uses.h"
#include "assay/compare/report/for_github.h"
#include "assay/compare/report/report.h"
#include "assay/compare/result/printable.h"

// Workflow commands: one line each on the log, "::error title=TITLE::MESSAGE". GitHub shows ten of a kind in
// a step and drops the rest, so there is one of each.
namespace assay {
namespace {

// As GitHub's toolkit escapes them (actions/toolkit, packages/core/src/command.ts): ':' and ',' end a
// property.
std::string escaped(std::string_view text, bool is_property) {
  std::string out;
  for (const char c : text) {
    const bool ends_property = is_property && (c == ':' || c == ',');
    if (c == '%' || c == '\r' || c == '\n' || ends_property)
      out += fmt::format("%{:02X}", static_cast<unsigned char>(c));
    else
      out += c;
  }
  return out;
}

}  // namespace

std::string github_command(std::string_view name, std::string_view title, std::string_view message) {
  return fmt::format("::{} title={}::{}\n", name, escaped(title, true), escaped(message, false));
}

std::string to_github_annotations(const Report& report) {
  std::string out;
  if (const Finding* first = report.first_failure()) {
    std::string message = printable(first->reason);
    for (const Diagnosis& d : first->diagnoses) message += "\n" + printable(sentence(d));
    if (first->origin)
      message += fmt::format("\n{}: {}", name(first->origin->kind), printable(first->origin->reason));
    if (!first->repeat.empty()) message += "\n" + printable(first->repeat);
    out += github_command(
        "error", fmt::format("assay {}: {}: {}", report.verb, name(first->verdict), printable(first->name)),
        message);
  } else if (report.exit_status() != 0) {
    out += github_command("error", "assay " + report.verb, "nothing was compared");
  }
  std::string notice = report.summary();
  if (report.coverage) notice += "\n" + printable(sentence(*report.coverage));
  for (const ExemptionUse& use : exemption_uses(report)) notice += "\n" + printable(use.text());
  return out + github_command("notice", "assay " + report.verb, notice);
}

}  // namespace assay
