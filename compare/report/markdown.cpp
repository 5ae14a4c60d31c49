#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "assay/compare/report/exemption_uses.h"
#include "assay/compare/report/folds.h"
#include "assay/compare/report/for_github.h"
#include "assay/compare/report/report.h"
#include "assay/compare/result/printable.h"
#include "assay/compare/result/version.h"

namespace assay {
namespace {

constexpr std::size_t most_table_rows = 20, most_table_notes = 10;
// GitHub drops a step summary beyond 1 MiB; several steps and tools share a page.
constexpr std::size_t most_bytes = 60'000;
constexpr std::size_t most_text = 600;  // characters of one name or reason

std::string verdict(const Report& report) {
  return fmt::format("## assay {}: {}\n\n{}\n", report.verb, report.verdict(), report.summary());
}

std::string first_failure(const Finding& f) {
  std::string out = fmt::format("\nFirst in execution order: **{}** ({}): {}\n", markdown_text(f.name),
                                name(f.verdict), markdown_text(f.reason));
  for (const Diagnosis& d : f.diagnoses) out += fmt::format("\n- because {}\n", markdown_text(sentence(d)));
  if (f.origin) out += fmt::format("\n- {}: {}\n", name(f.origin->kind), markdown_text(f.origin->reason));
  for (const std::string& note : f.notes) out += fmt::format("\n- {}\n", markdown_text(note));
  if (!f.repeat.empty()) out += fmt::format("\n- repeat: {}\n", markdown_text(f.repeat));
  return out;
}

std::string table(const Report& report) {
  std::string out =
      "\n| tensors | verdict | error/allowed | tensor | reason of the first |\n| ---: | --- | ---: | --- | "
      "--- |\n";
  for (const Fold& f : folds(report, most_table_rows)) {
    out += fmt::format("| {} | {} | {} | {} | {} |\n", grouped(f.count), name(f.verdict),
                       f.ratio > 0 ? fmt::format("{:.3g}", f.ratio) : "", markdown_text(f.name),
                       markdown_text(f.reason));
  }
  return out;
}

std::string identity(const Report& report) {
  const auto side = [](const std::string& path, const std::string& format) {
    return markdown_text(path) + (format.empty() ? "" : fmt::format(" ({})", markdown_text(format)));
  };
  std::string out = fmt::format("\nactual {}, reference {}", side(report.actual, report.actual_format),
                                side(report.reference, report.reference_format));
  for (const PolicyUsed& p : report.policies)
    out += fmt::format(", policy {}{}", markdown_text(p.name),
                       p.table_sha256.empty() ? "" : fmt::format(" (table {:.12})", p.table_sha256));
  out += fmt::format(", assay {}", version);
  return out + (report.command.empty() ? "" : ": " + markdown_text(report.command)) + "\n";
}

}  // namespace

std::string markdown_text(std::string_view text) {
  std::string shown = printable(text.substr(0, most_text));
  if (text.size() > most_text) shown += "..";
  std::string out;
  for (const char c : shown) {
    if (std::string_view("\\`*_{}[]()#+!|~$").find(c) != std::string_view::npos) out += '\\';
    if (c == '<')
      out += "&lt;";
    else if (c == '@')
      out += "&#64;";  // would notify whoever is called so
    else if (c == '&')
      out += "&amp;";
    else
      out += c;
  }
  return out;
}

std::string to_markdown(const Report& report) {
  std::string out = verdict(report);
  if (report.coverage) out += fmt::format("\n{}\n", markdown_text(sentence(*report.coverage)));
  if (const Finding* first = report.first_failure()) out += first_failure(*first) + table(report);
  for (const ExemptionUse& use : exemption_uses(report))
    out += fmt::format("\n- {}\n", markdown_text(use.text()));
  for (std::size_t i = 0; i < std::min(report.notes.size(), most_table_notes); ++i)
    out += fmt::format("\n- {}\n", markdown_text(report.notes[i]));
  if (report.notes.size() > most_table_notes)
    out += fmt::format("\n- and {} more notes\n", report.notes.size() - most_table_notes);
  const std::string end = identity(report);
  if (out.size() + end.size() > most_bytes) {
    const std::string said = "\n- and more that does not fit\n";
    out.resize(out.rfind('\n', most_bytes - end.size() - said.size()) + 1);
    out += said;
  }
  return out + end;
}

}  // namespace assay
