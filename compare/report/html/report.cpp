#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "assay/compare/report/html/html.h"
#include "assay/compare/report/html/page.h"
#include "assay/compare/report/report.h"

namespace assay {
namespace {

constexpr std::size_t most_bytes = 5'000'000;  // of a page

std::string section(std::string_view id, std::string_view heading, const std::string& content) {
  if (content.empty()) return "";
  return fmt::format("<section id=\"{0}\"><h2>{1}</h2>{2}</section>", id, heading, content);
}

}  // namespace

std::string html_filled(std::string_view text, const HtmlValues& values) {
  std::string out;
  for (;;) {
    const std::size_t open = text.find("{{"), close = text.find("}}");
    if (open == std::string_view::npos || close == std::string_view::npos) return out += text;
    const std::string_view key = text.substr(open + 2, close - open - 2);
    out += text.substr(0, open);
    for (const auto& [name, value] : values) {
      if (name == key) out += value;
    }
    text.remove_prefix(close + 2);
  }
}

std::string html_hash_source(std::string_view sha256) {
  std::string bytes;
  for (std::size_t i = 0; i + 1 < sha256.size(); i += 2)
    bytes += static_cast<char>(std::stoi(std::string(sha256.substr(i, 2)), nullptr, 16));
  return "'sha256-" + base64(bytes) + "'";
}

std::string to_html(const Report& report) {
  std::vector<HeatGrid> grids;
  std::string heat;
  for (auto& grid : {layer_by_kind(report), layer_by_expert(report)}) {
    if (!grid) continue;
    heat += fmt::format("<div class=\"wide\"><h3>{}</h3>{}</div>", html_text(grid->title),
                        heat_svg(report, *grid, fmt::format("heat{}", grids.size())));
    grids.push_back(*grid);
  }
  const Finding* first = report.first_failure();
  HtmlValues values = {
      {"title", html_text(fmt::format("{} assay {}: {} against {}", report.verdict(), report.verb,
                                      report.actual, report.reference))},
      {"style_hash", html_hash_source(page_css_sha256)},
      {"script_hash", html_hash_source(page_js_sha256)},
      {"style", std::string(page_css)},
      {"script", std::string(page_js)},
      {"verdict", verdict_html(report)},
      {"first", first == nullptr ? ""
                                 : section("first", "The first that did not pass, in execution order",
                                           finding_html(*first))},
      {"chart", report.findings.empty() ? "" : chart_svg(report)},
      {"heat_hidden", heat.empty() ? " hidden" : ""},
      {"heat", heat},
      {"overview", overview_html(report)},
      {"rows", worst_rows_html(report)},
  };
  const std::size_t without_data = html_filled(page_html, values).size();
  std::string left_out;
  values.emplace_back(
      "data", page_data(report, grids, most_bytes - std::min(most_bytes / 2, without_data + 1000), left_out));
  if (!left_out.empty())
    values.emplace_back("left_out",
                        fmt::format("<p class=\"left-out\">To stay below 5 MB this page leaves out: {}. "
                                    "<code>--json</code> and <code>--csv</code> leave out nothing.</p>",
                                    left_out));
  return html_filled(page_html, values);
}

}  // namespace assay
