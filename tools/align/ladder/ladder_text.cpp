#include <fmt/format.h>

#include <algorithm>

#include "assay/align/ladder/ladder_report.h"
#include "assay/compare/report.h"

namespace assay::align {
namespace {

using State = RungResult::State;

constexpr std::size_t width_of_name = 26, most_others = 5, most_groups = 4;

std::string cell(const PhaseResult& p) {
  if (p.failed > 0) return fmt::format("{} fail", grouped(p.failed));
  if (p.inherited > 0) return fmt::format("{} follow", grouped(p.inherited));
  if (p.not_compared > 0) return fmt::format("{} missing", grouped(p.not_compared));
  return p.compared == 0 ? "-" : grouped(p.compared);
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

void add(std::string& out, std::string_view head, const std::string& text) {
  if (!text.empty()) out += fmt::format("  {:<11}{}\n", head, printable(text));
}

std::string divergence_text(const Divergence& d, const RungResult& rung) {
  const std::vector<Finding>& findings = rung.report->findings;
  std::string out =
      fmt::format("{}: first wrong in {}, step {}{}\n", to_string(d.strategies), d.phase, d.step,
                  d.micro_batch < 0 ? "" : fmt::format(", micro-batch {}", d.micro_batch));
  add(out, "tensor", d.tensor);
  add(out, "because", d.cause);
  add(out, "origin", d.origin.empty() ? "" : "created here: " + d.origin);
  for (const Traffic& t : d.behind)
    add(out, "collective",
        fmt::format("{} over {} of {}{}: {}", t.what, name(t.axis), t.module, t.backward ? ", backward" : "",
                    groups_text(t)));
  add(out, "smallest",
      fmt::format("{} fails{}", to_string(d.strategies),
                  d.passes.empty() ? "" : "; these pass: " + d.passes));
  if (!d.others.empty()) {
    add(out, "also",
        d.others.size() == 1 ? "1 tensor more that does not follow from it:"
                             : fmt::format("{} tensors more that do not follow from it:",
                                           grouped(static_cast<std::int64_t>(d.others.size()))));
    for (std::size_t k = 0; k < std::min(d.others.size(), most_others); ++k) {
      const Finding& f = findings[d.others[k]];
      add(out, "", fmt::format("{}{}", f.name, f.diagnoses.empty() ? "" : ": " + f.diagnoses.front().text));
    }
  }
  add(out, "look",
      fmt::format("assay diff {} {}", shell_quoted(rung.subject.string()),
                  shell_quoted(rung.reference.string())));
  return out;
}

std::string counts(const LadderResult& result) {
  std::string text;
  for (const State s : {State::passed, State::failed, State::trouble, State::held, State::left_out}) {
    const auto n = std::ranges::count(result.rungs, s, &RungResult::state);
    if (n > 0 || s == State::passed || s == State::failed)
      text += fmt::format("{}{} {}", text.empty() ? "" : ", ", n, name(s));
  }
  return fmt::format("{} stages: {}", result.rungs.size(), text);
}

}  // namespace

std::string plan_text(const LadderPlan& plan, const LadderHead& head) {
  std::string out = fmt::format("{} to {}, {}\n  subject    {}\n  reference  {}, single device\n", head.model,
                                head.target.empty() ? "a single device" : head.target, head.precision,
                                printable(head.subject), printable(head.reference));
  double all = 0;
  const double least = plan.rungs.empty() ? 1 : cost_of(plan.rungs.front());
  out += fmt::format("  {:<{}} {:>5} {:>5} {:>13} {:>7} {:>5}  strategy\n", "stage", width_of_name, "ranks",
                     "steps", "micro-batches", "tokens", "cost");
  for (const Rung& r : plan.rungs) {
    all += cost_of(r) / least;
    out += fmt::format("  {:<{}} {:>5} {:>5} {:>13} {:>7} {:>5.1f}  {}\n", r.name, width_of_name,
                       r.parallel.ranks(), r.work.steps, r.work.micro_batches,
                       r.work.sequences * r.work.length, cost_of(r) / least, to_string(r.parallel));
  }
  return out +
         fmt::format("{} stages, in all {:.0f} times the first; the reference runs once for each work\n",
                     plan.rungs.size(), all);
}

std::string rung_line(const RungResult& r) {
  const std::string name_of =
      fmt::format("  {:<{}} {:>5} ", r.rung.name, width_of_name, r.rung.parallel.ranks());
  switch (r.state) {
    case State::held:
    case State::left_out:
    case State::trouble:
      return fmt::format("{} {}: {}", name_of, name(r.state), printable(r.reason));
    default:
      break;
  }
  if (r.from_cache) return fmt::format("{} passed before", name_of);
  return fmt::format("{} {:>11} {:>11} {:>11} {:>7.1f} s  {}{}", name_of, cell(r.phases[0]),
                     cell(r.phases[1]), cell(r.phases[2]), r.seconds,
                     r.state == State::passed ? r.rule : "FAIL", r.pinned ? ", pinned routing" : "");
}

std::string ladder_text(const LadderResult& result, const LadderHead&) {
  std::string out;
  for (const RungResult& r : result.rungs) {
    for (const ConfigurationCheck& c : r.configuration) {
      if (!c.passed) out += fmt::format("{}: {}\n", c.what, printable(c.found));
    }
  }
  for (std::size_t k = 0; k < result.divergences.size(); ++k)
    out += fmt::format("{}{}", out.empty() ? "" : "\n",
                       divergence_text(result.divergences[k], result.rungs[result.failing[k]]));
  return out + fmt::format("{}{}  {}; {:.1f} s\n", out.empty() ? "" : "\n", result.verdict(), counts(result),
                           result.seconds);
}

}  // namespace assay::align
