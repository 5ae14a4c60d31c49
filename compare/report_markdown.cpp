#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "assay/compare/report.h"

namespace assay {
namespace {

constexpr std::size_t most_rows = 20;

// Text that GitHub must show as it is: no markup, no table cell broken.
std::string plain(std::string_view text) {
  std::string out;
  for (const char c : printable(text)) {
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

}  // namespace

std::string to_markdown(const Report& report) {
  const int status = report.exit_status();
  std::string out = fmt::format("## assay {}: {}\n\n{} against {}\n\n{}\n", report.verb,
                                status == 0   ? "PASS"
                                : status == 1 ? "FAIL"
                                              : "TROUBLE",
                                plain(report.actual), plain(report.reference), plain(report.summary()));
  if (const Finding* first = report.first_failure()) {
    out += fmt::format("\nFirst in execution order: **{}** ({}): {}\n", plain(first->name),
                       name(first->verdict), plain(first->reason));
    for (const std::string& note : first->notes) out += fmt::format("\n> {}\n", plain(note));
    out += "\n| verdict | error/allowed | tensor | rule | reason |\n| --- | ---: | --- | --- | --- |\n";
    std::vector<const Finding*> open;
    for (const Finding& f : report.findings) {
      if (f.verdict != Verdict::passed && f.verdict != Verdict::ignored) open.push_back(&f);
    }
    for (std::size_t i = 0; i < std::min(open.size(), most_rows); ++i) {
      const Finding& f = *open[i];
      out += fmt::format("| {} | {} | {} | {} | {} |\n", name(f.verdict),
                         f.metrics ? fmt::format("{:.3g}", f.ratio) : "", plain(f.name), plain(f.rule),
                         plain(f.reason));
    }
    if (open.size() > most_rows) out += fmt::format("\nand {} more\n", open.size() - most_rows);
  }
  for (const std::string& note : report.notes) out += fmt::format("\n- {}\n", plain(note));
  return out;
}

}  // namespace assay
