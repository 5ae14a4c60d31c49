#include <fmt/format.h>

#include "assay/align/ladder/ladder_lines.h"
#include "assay/align/ladder/ladder_report.h"
#include "assay/compare/report/for_github.h"
#include "assay/compare/report/report.h"
#include "assay/compare/result/printable.h"
#include "assay/compare/result/version.h"

namespace assay::align {
namespace {

using State = RungResult::State;

constexpr std::size_t most_bytes = 60'000;  // several steps and tools share GitHub's page

std::string divergence_lines(const Divergence& d, const RungResult& r) {
  std::string out = fmt::format("\n**{}**\n", markdown_text(headline(d)));
  for (const LadderLine& line : lines_of(d, r)) {
    if (line.what.empty())
      out += fmt::format("  - {}\n", markdown_text(line.text));
    else
      out +=
          fmt::format("{}- {}: {}\n", line.what == "tensor" ? "\n" : "", line.what, markdown_text(line.text));
  }
  return out;
}

std::string row(const RungResult& r) {
  const bool is_judged = (r.state == State::passed || r.state == State::failed) && !r.from_cache;
  std::string cells;
  for (const PhaseResult& p : r.phases) cells += fmt::format(" {} |", is_judged ? cell_text(p) : "");
  return fmt::format("| {} | {} | {} |{} {} | {} |\n", markdown_text(r.rung.name), r.rung.parallel.ranks(),
                     r.state == State::passed ? name(r.state) : fmt::format("**{}**", name(r.state)), cells,
                     is_judged ? fmt::format("{:.1f} s", r.seconds) : "",
                     markdown_text(r.from_cache ? "passed before"
                                   : is_judged  ? r.rule + (r.pinned ? ", pinned routing" : "")
                                                : r.reason));
}

}  // namespace

std::string to_markdown(const LadderResult& result, const LadderHead& head) {
  std::string out = fmt::format("## assay align: {}\n\n{}; {:.1f} s\n", result.verdict(), counts_text(result),
                                result.seconds);
  for (const ConfigurationCheck* c : result.configuration()) {
    if (!c->passed || c->accepted)
      out += fmt::format("\n- {}: {}{}\n", markdown_text(c->what), c->accepted ? "accepted: " : "",
                         markdown_text(c->found));
  }
  for (std::size_t k = 0; k < result.divergences.size(); ++k)
    out += divergence_lines(result.divergences[k], result.rungs[result.failing[k]]);
  out +=
      "\n| stage | ranks | | forward | backward | optimizer | time | |\n"
      "| --- | ---: | --- | ---: | ---: | ---: | ---: | --- |\n";
  for (const RungResult& r : result.rungs) out += row(r);
  const std::string end =
      fmt::format("\n{} to {}, {}; subject {}, reference {}, assay {}{}\n", markdown_text(head.model),
                  head.target.empty() ? "a single device" : markdown_text(head.target),
                  markdown_text(head.precision), markdown_text(head.subject), markdown_text(head.reference),
                  version, head.command.empty() ? "" : ": " + markdown_text(head.command));
  if (out.size() + end.size() > most_bytes) {
    const std::string said = "\n- and more that does not fit\n";
    out.resize(out.rfind('\n', most_bytes - end.size() - said.size()) + 1);
    out += said;
  }
  return out + end;
}

std::string to_github_annotations(const LadderResult& result) {
  std::string out;
  if (!result.divergences.empty()) {
    const Divergence& d = result.divergences.front();
    std::string message;
    for (const LadderLine& line : lines_of(d, result.rungs[result.failing.front()]))
      message += fmt::format("{}{}{}{}", message.empty() ? "" : "\n", line.what,
                             line.what.empty() ? "  " : ": ", printable(line.text));
    out += github_command("error", "assay align: " + headline(d), message);
  } else if (result.exit_status() != 0) {
    std::string title = "nothing was judged", message = counts_text(result);
    for (const RungResult& r : result.rungs) {
      if (r.state == State::passed || r.state == State::held) continue;
      title = fmt::format("{}: {}", printable(r.rung.name), name(r.state));
      message = printable(r.reason);
      break;
    }
    for (const ConfigurationCheck* c : result.configuration()) {
      if (c->passed) continue;
      title = "configuration";
      message = fmt::format("{}: {}", printable(c->what), printable(c->found));
    }
    out += github_command("error", "assay align: " + title, message);
  }
  return out + github_command(
                   "notice", "assay align",
                   fmt::format("{}  {}; {:.1f} s", result.verdict(), counts_text(result), result.seconds));
}

}  // namespace assay::align
