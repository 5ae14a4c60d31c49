#include <fmt/format.h>
#include <fmt/ranges.h>

#include "assay/align/ladder/ladder_lines.h"
#include "assay/align/ladder/ladder_report.h"
#include "assay/compare/result/printable.h"

namespace assay::align {
namespace {

using State = RungResult::State;

constexpr std::size_t width_of_name = 26;

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
  return fmt::format("{} {:>11} {:>11} {:>11} {:>7.1f} s  {}{}", name_of, cell_text(r.phases[0]),
                     cell_text(r.phases[1]), cell_text(r.phases[2]), r.seconds,
                     r.state == State::passed ? r.rule + r.exempt : "FAIL",
                     r.pinned ? ", pinned routing" : "");
}

std::string ladder_text(const LadderResult& result, const std::vector<std::string>& written) {
  std::string out;
  for (const ConfigurationCheck* c : result.configuration()) {
    if (!c->passed || c->accepted)
      out +=
          fmt::format("{}: {}{}\n", printable(c->what), c->accepted ? "accepted: " : "", printable(c->found));
  }
  for (std::size_t k = 0; k < result.divergences.size(); ++k)
    out += fmt::format("{}{}", out.empty() ? "" : "\n",
                       text_of(result.divergences[k], result.rungs[result.failing[k]]));
  return out + fmt::format("{}{}  {}; {:.1f} s{}{}\n", out.empty() ? "" : "\n", result.verdict(),
                           counts_text(result), result.seconds, written.empty() ? "" : "; wrote ",
                           printable(fmt::format("{}", fmt::join(written, ", "))));
}

}  // namespace assay::align
