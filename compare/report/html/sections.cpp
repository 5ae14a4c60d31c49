#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <vector>

#include "assay/compare/report/exemption_uses.h"
#include "assay/compare/report/folds.h"
#include "assay/compare/report/html/html.h"
#include "assay/compare/report/rule_uses.h"
#include "assay/compare/result/finding.h"
#include "assay/compare/result/printable.h"
#include "assay/compare/result/version.h"

namespace assay {
namespace {

constexpr std::size_t most_section_rows = 50, most_folds = 40, most_reasons = 20, most_section_notes = 50;

}  // namespace

std::string verdict_html(const Report& r) {
  const int status = r.exit_status();
  const auto total = static_cast<std::int64_t>(r.findings.size());
  const Finding* first = r.first_failure();
  std::string sentence = r.compared_nothing() ? "Nothing was compared. " : "";
  if (status == 0) {
    const std::int64_t ignored = r.count(Verdict::ignored);
    const std::int64_t exempt = r.count(Verdict::exempt);
    sentence = fmt::format("{} of {} tensors were compared, and every one is inside of its tolerance{}{}.",
                           grouped(r.compared()), grouped(total),
                           exempt == 0 ? "" : fmt::format(" or exempt ({})", grouped(exempt)),
                           ignored == 0 ? "" : fmt::format("; {} were left out by rule", grouped(ignored)));
  } else if (first != nullptr) {
    const std::int64_t open = total - std::ranges::count_if(r.findings, is_fine, &Finding::verdict);
    const auto follow = std::ranges::count_if(r.findings, is_inherited);
    sentence += fmt::format(
        "{} of {} tensors did not pass{}. The first in execution order is <a "
        "href=\"#first\"><code>{}</code></a>.",
        grouped(open), grouped(total),
        follow == 0 ? "" : fmt::format(", {} of them after others", grouped(follow)), html_text(first->name));
  }
  std::string out = fmt::format(
      "<header class=\"verdict s{}\"><h1><span class=\"word\">{}</span></h1><p "
      "class=\"sentence\">{}</p><ul class=\"counts\" id=\"counts\">",
      status, r.verdict(), sentence);
  for (int v = 0; v < verdict_count; ++v) {
    const auto verdict = static_cast<Verdict>(v);
    if (const std::int64_t n = r.count(verdict))
      out += fmt::format("<li data-verdict=\"{}\"><b>{}</b> {}</li>", v, grouped(n), html_badge(verdict));
  }
  std::string policies;
  for (const PolicyUsed& p : r.policies) {
    policies += fmt::format("{}{}", policies.empty() ? "" : ", ", p.name);
    if (!p.table_sha256.empty()) policies += fmt::format(" (table SHA-256 {:.12}..)", p.table_sha256);
  }
  const auto side = [](const std::string& path, const std::string& format) {
    return html_code(path) + (format.empty() ? "" : " (" + html_text(format) + ")");
  };
  return out + "</ul><dl class=\"sides\">" + html_item("actual", side(r.actual, r.actual_format)) +
         html_item("reference", side(r.reference, r.reference_format)) +
         html_item("tolerance", html_text(policies)) +
         html_item("command", r.command.empty() ? "" : html_code(r.command)) +
         html_item("run", fmt::format("assay {} {}, {:.3g} s, exit status {}", version, html_text(r.verb),
                                      r.seconds, status)) +
         fmt::format("</dl>{}<p class=\"summary\">{}</p></header>",
                     r.coverage ? fmt::format("<p>{}.</p>", html_text(assay::sentence(*r.coverage))) : "",
                     html_text(r.summary()));
}

std::string overview_html(const Report& r) {
  std::string out;
  if (const std::vector<Fold> list = folds(r, most_folds); !list.empty()) {
    HtmlTable table("What did not pass, layers and experts folded, in execution order",
                    {"verdict", "tensors", "error / allowed", "tensor"});
    for (const Fold& f : list)
      table.row({html_badge(f.verdict), grouped(f.count), f.ratio > 0 ? short_number(f.ratio) : "",
                 html_code(f.name)});
    out += "<section id=\"folds\">" + table.end() + "</section>";
  }
  if (const std::vector<ExemptionUse> uses = exemption_uses(r); !uses.empty()) {
    HtmlTable table("Outside of the tolerance, but right",
                    {"tensors", "exemption", "error / allowed", "furthest"});
    for (const ExemptionUse& use : uses)
      table.row({grouped(use.count), html_text(sentence(*use.furthest->exemption)),
                 short_number(use.furthest->ratio), html_code(use.furthest->name)});
    out += "<section id=\"exempt\">" + table.end() + "</section>";
  }
  if (const std::vector<RuleUse> uses = rule_uses(r); !uses.empty()) {
    HtmlTable table("Rules by which tensors passed", {"tensors", "largest error / allowed", "rule", "in"});
    for (const RuleUse& use : uses)
      table.row({grouped(use.count), short_number(use.worst), html_text(use.rule),
                 use.worst > 0 ? html_code(use.worst_in) : ""});
    out += "<section id=\"rules\">" + table.end() + "</section>";
  }
  std::map<std::pair<Verdict, std::string>, std::int64_t> reasons;
  for (const Finding& f : r.findings) {
    if (mark(f.verdict) == 'N' || f.verdict == Verdict::ignored) ++reasons[{f.verdict, f.reason}];
  }
  if (!reasons.empty()) {
    HtmlTable table("What was not compared, and why", {"verdict", "tensors", "why"});
    std::size_t shown = 0;
    for (const auto& [key, count] : reasons) {
      if (shown++ < most_reasons) table.row({html_badge(key.first), grouped(count), html_text(key.second)});
    }
    if (shown > most_reasons) table.row({"", "", fmt::format("and {} more reasons", shown - most_reasons)});
    out += "<section id=\"uncompared\">" + table.end() + "</section>";
  }
  if (!r.notes.empty()) {
    out += "<section id=\"notes\"><h2>Notes</h2><ul>";
    for (std::size_t i = 0; i < std::min(r.notes.size(), most_section_notes); ++i)
      out += fmt::format("<li>{}</li>", html_text(r.notes[i]));
    if (r.notes.size() > most_section_notes)
      out += fmt::format("<li>and {} more</li>", r.notes.size() - most_section_notes);
    out += "</ul></section>";
  }
  return out;
}

std::string worst_rows_html(const Report& r) {
  std::vector<const Finding*> rows;
  for (const Finding& f : r.findings) rows.push_back(&f);
  const auto rank = [](const Finding* f) {
    return std::pair(std::string_view("FWNP-").find(mark(f->verdict)),
                     std::isnan(f->ratio) ? -std::numeric_limits<double>::infinity() : -f->ratio);
  };
  std::ranges::stable_sort(rows, {}, rank);
  std::string out;
  for (std::size_t i = 0; i < std::min(rows.size(), most_section_rows); ++i) {
    const Finding& f = *rows[i];
    const auto number = [&](double Metrics::*what) {
      return f.metrics ? short_number((*f.metrics).*what) : "";
    };
    out += fmt::format(
        "<tr><td>{}</td><td>{}</td><td>{}</td><td class=\"name\" "
        "title=\"{}\">{}</td><td>{}</td><td>{}</td><td>{}"
        "</td><td>{}</td></tr>",
        &f - r.findings.data() + 1, html_badge(f.verdict), is_judged(f) ? short_number(f.ratio) : "",
        html_text(f.name), html_text(f.name),
        is_judged(f) ? fmt::format("{} {}", name(f.actual_dtype), to_string(f.actual_shape)) : "",
        number(&Metrics::max_abs), number(&Metrics::relative_l2),
        f.metrics ? short_number(static_cast<double>(f.metrics->max_ulp)) : "");
  }
  return out;
}

}  // namespace assay
