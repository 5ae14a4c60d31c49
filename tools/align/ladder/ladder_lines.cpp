#include "assay/align/ladder/ladder_lines.h"

#include <fmt/format.h>

#include <algorithm>

#include "assay/compare/result/finding.h"
#include "assay/compare/result/printable.h"

namespace assay::align {
namespace {

using State = RungResult::State;

constexpr std::size_t most_others = 5, most_groups = 4;

void add_others(std::vector<LadderLine>& lines, const Divergence& d, const std::vector<Finding>& findings) {
  if (d.others.empty()) return;
  lines.push_back({"also", d.others.size() == 1
                               ? "1 tensor more that does not follow from it:"
                               : fmt::format("{} tensors more that do not follow from it:",
                                             grouped(static_cast<std::int64_t>(d.others.size())))});
  for (std::size_t k = 0; k < std::min(d.others.size(), most_others); ++k) {
    const Finding& f = findings[d.others[k]];
    lines.push_back(
        {"", fmt::format("{}{}", f.name, f.diagnoses.empty() ? "" : ": " + sentence(f.diagnoses.front()))});
  }
}

}  // namespace

std::string headline(const Divergence& d) {
  return fmt::format("{}: first wrong in {}, step {}{}", to_string(d.strategies), d.phase, d.step,
                     d.micro_batch < 0 ? "" : fmt::format(", micro-batch {}", d.micro_batch));
}

std::vector<LadderLine> lines_of(const Divergence& d, const RungResult& rung) {
  std::vector<LadderLine> lines = {{"tensor", d.tensor}, {"because", d.cause}};
  if (!d.origin.empty()) lines.push_back({"origin", "created here: " + d.origin});
  for (const Traffic& t : d.behind)
    lines.push_back({"collective", fmt::format("{}: {}", to_string(t), groups_text(t))});
  lines.push_back({"smallest", fmt::format("{} fails{}", to_string(d.strategies),
                                           d.passes.empty() ? "" : "; these pass: " + d.passes)});
  add_others(lines, d, rung.report->findings);
  lines.push_back({"look", rung.report->command});
  if (!rung.page.empty()) lines.push_back({"page", rung.page.string()});
  std::erase_if(lines, [](const LadderLine& line) { return line.text.empty(); });
  return lines;
}

std::string text_of(const Divergence& d, const RungResult& rung) {
  std::string out = headline(d) + "\n";
  for (const LadderLine& line : lines_of(d, rung))
    out += fmt::format("  {:<11}{}\n", line.what, printable(line.text));
  return out;
}

std::string to_string(const Traffic& t) {
  return fmt::format("{} over {} of {}{}", t.what, name(t.axis), t.module, t.backward ? ", backward" : "");
}

std::string groups_text(const Traffic& t) {
  std::string text;
  for (std::size_t k = 0; k < std::min(t.groups.size(), most_groups); ++k) {
    text += k == 0 ? "ranks " : " | ";
    for (std::size_t i = 0; i < t.groups[k].size(); ++i)
      text += fmt::format("{}{}", i == 0 ? "" : " ", t.groups[k][i]);
  }
  return text + (t.groups.size() > most_groups
                     ? fmt::format(" and {} groups more", t.groups.size() - most_groups)
                     : "");
}

std::string cell_text(const PhaseResult& p) {
  if (p.failed > 0) return fmt::format("{} fail", grouped(p.failed));
  if (p.inherited > 0) return fmt::format("{} follow", grouped(p.inherited));
  if (p.not_compared > 0) return fmt::format("{} missing", grouped(p.not_compared));
  return p.compared == 0 ? "-" : grouped(p.compared);
}

char mark(const PhaseResult& p) {
  if (p.failed > 0) return 'F';
  if (p.inherited > 0) return 'W';
  return p.not_compared > 0 || p.compared == 0 ? 'N' : 'P';
}

char mark(State state) {
  constexpr std::string_view marks = "PFFW-";
  return marks[static_cast<std::size_t>(state)];
}

std::string counts_text(const LadderResult& result) {
  std::string text;
  for (const State s : {State::passed, State::failed, State::trouble, State::held, State::left_out}) {
    const auto n = std::ranges::count(result.rungs, s, &RungResult::state);
    if (n > 0 || s == State::passed || s == State::failed)
      text += fmt::format("{}{} {}", text.empty() ? "" : ", ", n, name(s));
  }
  return fmt::format("{} stages: {}", result.rungs.size(), text);
}

std::string_view name(Rung::Kind kind) {
  constexpr std::string_view names[] = {"single", "dimension", "pair", "full", "larger", "stated"};
  return names[static_cast<std::size_t>(kind)];
}

}  // namespace assay::align
