#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "assay/align/ladder/ladder_lines.h"
#include "assay/align/ladder/ladder_pictures.h"
#include "assay/align/ladder/ladder_report.h"
#include "assay/align/ladder/page.h"
#include "assay/compare/report/html/html.h"
#include "assay/compare/report/html/page.h"
#include "assay/compare/report/report.h"
#include "assay/compare/result/printable.h"
#include "assay/compare/result/version.h"

namespace assay::align {
namespace {

using State = RungResult::State;

constexpr std::size_t most_others_on_page = 200, most_modules = 3;

std::string badge(State state) {
  return html_badge(mark(state), name(state));
}

std::string sentence(const LadderResult& result) {
  const auto judged = std::ranges::count(result.rungs, State::passed, &RungResult::state);
  if (!result.divergences.empty()) {
    std::string sets;
    for (std::size_t k = 0; k < result.divergences.size(); ++k)
      sets += fmt::format("{}<a href=\"#divergence-{}\">{}</a>", k == 0 ? "" : "; ", k + 1,
                          html_text(to_string(result.divergences[k].strategies)));
    return fmt::format("{} of {} stages passed. Smallest that fail{}: {}.", judged, result.rungs.size(),
                       result.divergences.size() == 1 ? "s" : "", sets);
  }
  if (result.exit_status() == 0)
    return fmt::format("All of {} stages passed: the strategy changes nothing that is recorded.", judged);
  return fmt::format("{} of {} stages passed.", judged, result.rungs.size());
}

std::string verdict(const LadderResult& result, const LadderHead& head) {
  std::string out = fmt::format(
      "<header class=\"verdict s{}\"><h1><span class=\"word\">{}</span></h1><p class=\"sentence\">{}</p><ul "
      "class=\"counts\">",
      result.exit_status(), result.verdict(), sentence(result));
  for (const State s : {State::passed, State::failed, State::trouble, State::held, State::left_out}) {
    if (const auto n = std::ranges::count(result.rungs, s, &RungResult::state))
      out += fmt::format("<li><b>{}</b> {}</li>", n, badge(s));
  }
  return out + "</ul><dl class=\"sides\">" + html_item("model", html_code(head.model)) +
         html_item("strategy", head.target.empty() ? "a single device" : html_code(head.target)) +
         html_item("precision", html_text(head.precision)) + html_item("subject", html_code(head.subject)) +
         html_item("reference", html_code(head.reference) + ", on a single device") +
         html_item("command", head.command.empty() ? "" : html_code(head.command)) +
         html_item("run", fmt::format("assay {} align, {:.1f} s, exit status {}", version, result.seconds,
                                      result.exit_status())) +
         fmt::format("</dl><p class=\"summary\">{}</p></header>", html_text(counts_text(result)));
}

bool is_same(const Traffic& a, const Traffic& b) {
  return a.module == b.module && a.what == b.what && a.axis == b.axis && a.backward == b.backward;
}

// Those of one kind in one row, what is wrong in rows of its own before them.
std::string traffic_table(const std::vector<Traffic>& all, const std::vector<Traffic>& wrong) {
  std::string rows;
  const auto add = [&](const Traffic& t, const std::string& modules, bool is_wrong) {
    rows += fmt::format("<tr{}><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
                        is_wrong ? " class=\"wrong\"" : "", name(t.axis), html_text(t.what),
                        t.backward ? "backward" : "forward", modules, groups_text(t));
  };
  for (const Traffic& t : wrong) add(t, html_code(t.module), true);
  std::map<std::tuple<Axis, std::string, bool>, std::vector<const Traffic*>> kinds;
  for (const Traffic& t : all) {
    if (std::ranges::none_of(wrong, [&](const Traffic& w) { return is_same(t, w); }))
      kinds[{t.axis, t.what, t.backward}].push_back(&t);
  }
  for (const auto& [key, list] : kinds) {
    std::string modules;
    for (std::size_t i = 0; i < std::min(list.size(), most_modules); ++i)
      modules += html_code(list[i]->module);
    if (list.size() > most_modules) modules += fmt::format(" and {} more", list.size() - most_modules);
    add(*list.front(), modules, false);
  }
  return "<table class=\"plain\"><caption class=\"small\">Collectives, each kind with its modules and "
         "groups</caption>"
         "<thead><tr><th scope=\"col\">axis</th><th scope=\"col\">what</th><th scope=\"col\">phase</th><th "
         "scope=\"col\">of</th><th scope=\"col\">groups</th></tr></thead><tbody>" +
         rows + "</tbody></table>";
}

std::string who_talks(const Rung& rung, const std::vector<Traffic>& wrong, const std::string& id) {
  if (rung.parallel.ranks() < 2) return "";
  const std::vector<Traffic> all = traffic_of(rung);
  const std::string picture = ranks_svg(rung, all, wrong, id);
  return (picture.empty() ? fmt::format("<p class=\"hint\">{} ranks are more than a picture can show.</p>",
                                        rung.parallel.ranks())
                          : "<div class=\"wide\">" + picture + "</div>" + ranks_legend(all, !wrong.empty())) +
         traffic_table(all, wrong);
}

std::string others(const Divergence& d, const Report& report) {
  if (d.others.empty()) return "";
  std::string out = fmt::format(
      "<details><summary>{} tensors more that follow from nothing recorded</summary><ul class=\"others\">",
      grouped(static_cast<std::int64_t>(d.others.size())));
  for (std::size_t i = 0; i < std::min(d.others.size(), most_others_on_page); ++i) {
    const Finding& f = report.findings[d.others[i]];
    out += fmt::format("<li>{}: {}</li>", html_code(f.name),
                       html_text(f.diagnoses.empty() ? f.reason : sentence(f.diagnoses.front())));
  }
  if (d.others.size() > most_others_on_page)
    out += fmt::format("<li>and {} more</li>", d.others.size() - most_others_on_page);
  return out + "</ul></details>";
}

std::string divergence_section(const Divergence& d, const RungResult& r, std::size_t number) {
  const std::string id = fmt::format("divergence-{}", number);
  std::string out = fmt::format("<section id=\"{}\" class=\"card\"><h2>{}</h2><dl class=\"facts\">", id,
                                html_text(headline(d)));
  for (const LadderLine& line : lines_of(d, r)) {
    if (line.what.empty() || line.what == "also") continue;
    const bool is_code = line.what == "tensor" || line.what == "look" || line.what == "page";
    std::string text = is_code ? html_code(line.text) : html_text(line.text);
    if (line.what == "because") text = "<span class=\"cause\">" + text + "</span>";
    out += html_item(line.what, text);
  }
  out += "</dl><details open><summary>The tensor</summary>" + finding_html(r.report->findings[d.finding]) +
         "</details>" + others(d, *r.report);
  out += fmt::format(
      "<h3>Error / allowed in {}, in execution order</h3><div class=\"wide\">{}</div><ul "
      "class=\"legend\"><li><i "
      "class=\"k k-P\"></i>passed</li><li><i class=\"k k-F\"></i>failed, replicas differ</li><li><i "
      "class=\"k "
      "k-W\"></i>inherited, mistrusted, no rule</li><li><i class=\"k k-N\"></i>not compared</li></ul>",
      html_text(r.rung.name), chart_svg(*r.report, id + "-chart"));
  if (const std::string talk = who_talks(r.rung, d.behind, id + "-ranks"); !talk.empty())
    out += "<h3>Who talks to whom</h3>" + talk;
  return out + "</section>";
}

std::string stages(const LadderResult& result) {
  HtmlTable table("Stages", {"stage", "verdict", "ranks", "strategy", "forward", "backward", "optimizer",
                             "largest error / allowed that passed", "s", "rule"});
  for (const RungResult& r : result.rungs) {
    double worst = 0;
    for (const PhaseResult& p : r.phases) worst = std::max(worst, p.worst);
    const bool is_judged = (r.state == State::passed || r.state == State::failed) && !r.from_cache;
    const auto cell = [&](std::size_t k) { return is_judged ? cell_text(r.phases[k]) : std::string(); };
    const std::string strategy = to_string(r.rung.parallel);
    table.row({html_text(r.rung.name), badge(r.state), std::to_string(r.rung.parallel.ranks()),
               strategy.empty() ? "" : html_code(strategy), cell(0), cell(1), cell(2),
               is_judged ? short_number(worst) : "", is_judged ? fmt::format("{:.1f}", r.seconds) : "",
               html_text(r.from_cache ? "passed before, with the same content"
                                      : r.rule + (r.pinned ? ", pinned routing" : ""))});
  }
  return "<section id=\"stages\" class=\"wide\">" + table.end() + "</section>";
}

std::string not_run(const LadderResult& result) {
  HtmlTable table("What was not judged, and why", {"stage", "", "why"});
  bool is_empty = true;
  for (const RungResult& r : result.rungs) {
    if (r.state == State::passed || r.state == State::failed) continue;
    is_empty = false;
    table.row({html_text(r.rung.name), badge(r.state), html_text(r.reason)});
  }
  return is_empty ? "" : "<section id=\"not-judged\">" + table.end() + "</section>";
}

std::string configuration(const LadderResult& result) {
  HtmlTable table("Configuration of both sides: their files, and a single device", {"what", "", "found"});
  const std::vector<const ConfigurationCheck*> all = result.configuration();
  for (const ConfigurationCheck* c : all) {
    table.row({html_text(c->what),
               !c->passed    ? html_badge('F', "differs")
               : c->accepted ? html_badge('N', "accepted")
               : c->differs  ? html_badge('N', "noted")
                             : html_badge('P', "equal"),
               html_text(c->found)});
  }
  return all.empty() ? "" : "<section id=\"configuration\">" + table.end() + "</section>";
}

// Of the strategy at the top where nothing is wrong: else each divergence has its own.
std::string ranks(const LadderResult& result) {
  if (!result.divergences.empty() || result.rungs.empty()) return "";
  const auto most = std::ranges::max_element(result.rungs, {}, [](const RungResult& r) {
    return r.state == State::left_out ? 0 : r.rung.parallel.ranks();
  });
  const std::string talk = who_talks(most->rung, {}, "ranks");
  if (talk.empty()) return "";
  return fmt::format("<section id=\"who\"><h2>Who talks to whom in {}</h2>{}</section>",
                     html_text(most->rung.name), talk);
}

}  // namespace

std::string to_html(const LadderResult& result, const LadderHead& head) {
  std::string divergences;
  for (std::size_t k = 0; k < result.divergences.size(); ++k)
    divergences += divergence_section(result.divergences[k], result.rungs[result.failing[k]], k + 1);
  const HtmlValues values = {
      {"title", html_text(fmt::format("{} assay align: {} to {}", result.verdict(), head.model,
                                      head.target.empty() ? "a single device" : head.target))},
      {"style_hashes", html_hash_source(page_css_sha256) + " " + html_hash_source(ladder_css_sha256)},
      {"style", std::string(page_css)},
      {"ladder_style", std::string(ladder_css)},
      {"verdict", verdict(result, head)},
      {"ladder", ladder_svg(result)},
      {"divergences", divergences},
      {"configuration", configuration(result)},
      {"stages", stages(result)},
      {"not_run", not_run(result)},
      {"ranks", ranks(result)}};
  return html_filled(ladder_html, values);
}

}  // namespace assay::align
