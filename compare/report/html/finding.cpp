#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "assay/compare/report/html/html.h"
#include "assay/compare/result/finding.h"
#include "assay/compare/result/printable.h"

namespace assay {
namespace {

std::string counted(std::int64_t n, std::string_view what) {
  return fmt::format("{} {}{}", grouped(n), what, n == 1 ? "" : "s");
}

std::string measured(const Finding& f) {
  const Metrics& m = *f.metrics;
  std::string out;
  const std::int64_t at = worst_element(m);
  if (at >= 0)
    out +=
        html_item("worst element",
                  fmt::format("{} actual {}, reference {}", html_code(to_string(unravel(at, f.actual_shape))),
                              html_code(format_value(f.actual_dtype, f.actual_value)),
                              html_code(format_value(f.reference_dtype, f.reference_value))));
  if (m.over > 0) out += html_item("outside", share_outside(m));
  if (m.max_abs_at >= 0)
    out += html_item(
        "error", fmt::format("max abs {}, max rel {}, rel L2 {}, 1-cos {}, max {} ulp",
                             short_number(m.max_abs), short_number(m.max_rel), short_number(m.relative_l2),
                             short_number(m.one_minus_cosine), m.max_ulp));
  if (m.special_mismatch + m.actual.nan + m.actual.infinite + m.reference.nan + m.reference.infinite > 0)
    out += html_item("not finite",
                     fmt::format("NaN {} against {}, Inf {} against {}; they differ in {}",
                                 grouped(m.actual.nan), grouped(m.reference.nan), grouped(m.actual.infinite),
                                 grouped(m.reference.infinite), counted(m.special_mismatch, "element")));
  if (!std::isnan(f.required) && f.ratio > 1)
    out += html_item("would pass with", fmt::format("tolerance {}", short_number(f.required)));
  return out;
}

std::string statistics(const Finding& f) {
  if (f.statistics.empty()) return "";
  HtmlTable table("Statistics", {"of the whole", "actual", "reference", "allowed error"});
  for (const ComparedStatistic& s : f.statistics) {
    const auto [which, actual, reference, allowed] = statistic_cells(s);
    table.row({which, html_code(actual), html_code(reference), allowed});
  }
  return table.end();
}

std::string worst_elements(const Finding& f) {
  if (!f.error_map || f.error_map->worst.empty()) return "";
  HtmlTable table("Worst elements", {"index", "actual", "reference", "error", "error / allowed"});
  for (const ErrorMap::Element& e : f.error_map->worst)
    table.row({html_code(to_string(unravel(e.at, f.actual_shape))),
               html_code(format_value(f.actual_dtype, e.actual)),
               html_code(format_value(f.reference_dtype, e.reference)), short_number(e.error),
               short_number(e.ratio)});
  return table.end();
}

std::string pictures(const Finding& f) {
  std::string out;
  if (f.error_map && !f.error_map->cells.empty()) {
    const ErrorMap& map = *f.error_map;
    out += fmt::format(
        "<figure><figcaption>Where the errors are <span>{} by {}</span></figcaption>{}<p "
        "class=\"small\">{}</p></figure>",
        counted(map.rows, "row"), counted(map.columns, "column"), error_map_svg(map),
        html_text(extent_of_errors(map)));
  }
  if (f.metrics && !f.metrics->ulp_histogram.empty())
    out += fmt::format(
        "<figure><figcaption>Errors in ulp of {} <span>log scales; the first bar is equal</span></figcaption>"
        "{}</figure>",
        name(f.metrics->ulp_dtype), histogram_svg(f.metrics->ulp_histogram, name(f.metrics->ulp_dtype)));
  return out;
}

}  // namespace

std::string share_outside(const Metrics& m) {
  const double share = 100 * static_cast<double>(m.over) / static_cast<double>(m.elements);
  return fmt::format("{} of {} elements ({} %)", grouped(m.over), grouped(m.elements),
                     share < 0.01 ? "< 0.01" : fmt::format("{}", std::stod(fmt::format("{:.2g}", share))));
}

std::array<std::string, 4> statistic_cells(const ComparedStatistic& s) {
  return {s.name, fmt::format("{:.9g}", s.actual), fmt::format("{:.9g}", s.reference),
          short_number(s.allowed)};
}

std::string extent_of_errors(const ErrorMap& map) {
  if (map.outside == 0) return "No element is outside.";
  const auto range = [](std::string_view what, std::int64_t first, std::int64_t last, std::int64_t all) {
    if (first == 0 && last == all - 1) return fmt::format("all {}s", what);
    return first == last ? fmt::format("{} {}", what, grouped(first))
                         : fmt::format("{}s {} to {}", what, grouped(first), grouped(last));
  };
  const double area = static_cast<double>(map.last_row - map.first_row + 1) *
                      static_cast<double>(map.last_column - map.first_column + 1);
  const double share = 100 * static_cast<double>(map.outside) / area;
  return fmt::format(
      "{} outside, within {}, {}: {} of the elements there.{}", grouped(map.outside),
      range("row", map.first_row, map.last_row, map.rows),
      range("column", map.first_column, map.last_column, map.columns),
      static_cast<double>(map.outside) == area ? "all" : fmt::format("{:.2g} %", std::min(share, 99.9)),
      map.in_units_of_allowed ? "" : " No error is allowed: shades go by the largest.");
}

std::string finding_html(const Finding& f) {
  std::string out =
      fmt::format("<h3><code>{}</code></h3><div class=\"finding\"><div><dl>", html_text(f.name));
  out += html_item("verdict", html_badge(f.verdict)) + html_item("why", html_text(f.reason));
  for (const Diagnosis& d : f.diagnoses) out += html_item("because", html_text(sentence(d)));
  if (f.exemption) out += html_item("exempt", html_text(sentence(*f.exemption)));
  if (f.origin)
    out += html_item("origin", fmt::format("{}: {}", name(f.origin->kind), html_text(f.origin->reason)));
  if (f.rule != f.reason) out += html_item("rule", html_text(f.rule));
  if (is_judged(f))
    out += html_item("error / allowed", fmt::format("<b class=\"num\">{}</b>", short_number(f.ratio)));
  if (f.metrics) out += measured(f);
  if (!f.count_source.empty())
    out += html_item("accumulations",
                     fmt::format("{} ({})", grouped(f.count.value_or(0)), html_text(f.count_source)));
  if (f.metrics || !f.actual_shape.empty())
    out += html_item("tensor", fmt::format("{} {}{}", name(f.actual_dtype), to_string(f.actual_shape),
                                           f.actual_dtype == f.reference_dtype
                                               ? ""
                                               : fmt::format(" against {}", name(f.reference_dtype))));
  for (const Opinion& o : f.others)
    out += html_item("also", fmt::format("{}: {}, error / allowed {}", html_text(o.policy), name(o.verdict),
                                         short_number(o.ratio)));
  out += "</dl>";
  if (!f.notes.empty()) {
    out += "<div class=\"notes\"><h4>What the numbers show</h4><ul>";
    for (const std::string& note : f.notes) out += fmt::format("<li>{}</li>", html_text(note));
    out += "</ul></div>";
  }
  if (!f.repeat.empty())
    out += fmt::format("<div class=\"repeat\"><h4>Repeat just this tensor</h4><pre>{}</pre></div>",
                       html_text(f.repeat));
  return out + statistics(f) + worst_elements(f) + "</div><div class=\"pictures\">" + pictures(f) +
         "</div></div>";
}

}  // namespace assay
