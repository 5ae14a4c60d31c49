#include <fmt/format.h>

#include <algorithm>

#include "assay/align/ladder/check_rung.h"
#include "assay/align/model/model.h"
#include "assay/compare/report/exemption_uses.h"
#include "assay/compare/result/printable.h"
#include "assay/golden/error.h"

namespace assay::align {
namespace {

using State = RungResult::State;

constexpr int most_error_maps = 20;  // each is a second pass over its tensor

PhaseResult& of_phase(RungResult& result, Phase phase) {
  const std::size_t at = phase == Phase::optimizer ? 2 : phase == Phase::backward ? 1 : 0;
  return result.phases[at];
}

void count(RungResult& result, const Report& report) {
  result.phases = {};
  for (const Finding& f : report.findings) {
    PhaseResult& phase = of_phase(result, f.id.phase);
    if (f.verdict == Verdict::ignored) continue;
    if (compared(f.verdict)) ++phase.compared;
    if (f.verdict == Verdict::inherited)
      ++phase.inherited;
    else if (is_fine(f.verdict))
      phase.worst = std::max(phase.worst, f.ratio);
    else if (compared(f.verdict))
      ++phase.failed;
    else
      ++phase.not_compared;
  }
}

void add_exemptions(RungResult& result, const Report& report) {
  for (const ExemptionUse& use : exemption_uses(report)) {
    result.exempt += fmt::format(", {} exempt by {}", grouped(use.count), name(use.kind));
    result.notes.push_back(use.text());
  }
}

std::int64_t first_failing_step(const Report& report) {
  const Finding* first = report.first_failure();
  std::int64_t step = first == nullptr ? 0 : first->id.step;
  for (const Finding& f : report.findings) {
    if (!is_fine(f.verdict)) step = std::min(step, f.id.step);
  }
  return step;
}

// More than half of what the subject recorded is known under no name.
std::string renamed(const Report& report) {
  const std::int64_t only_subject = report.count(Verdict::missing_reference),
                     only_reference = report.count(Verdict::missing_actual);
  if (only_reference == 0 || only_subject < report.compared() + 1) return "";
  const auto first = [&](Verdict v) {
    return std::ranges::find(report.findings, v, &Finding::verdict)->name;
  };
  return fmt::format(
      "its tensors have other names: {} of them the reference lacks, first '{}', and {} of the reference's "
      "it lacks, first '{}'; "
      "expected equal names, or [[rename]] rules (--rules)",
      only_subject, first(Verdict::missing_reference), only_reference, first(Verdict::missing_actual));
}

// Parts are missing that its recorder did not get to, and nothing that is there is wrong.
std::string cut_short(const Report& report) {
  const auto is_wrong = [](const Finding& f) { return compared(f.verdict) && !is_fine(f.verdict); };
  const auto is_part = [](const Finding& f) {
    return f.id.phase == Phase::none && f.verdict == Verdict::not_comparable &&
           f.name.starts_with("actual: ");
  };
  const auto part = std::ranges::find_if(report.findings, is_part);
  if (part == report.findings.end() || std::ranges::any_of(report.findings, is_wrong)) return "";
  return "its dump is not whole: " + part->name.substr(std::string_view("actual: ").size());
}

}  // namespace

std::vector<std::size_t> roots_of(const Report& report) {
  std::vector<std::size_t> roots, undecided;
  for (std::size_t i = 0; i < report.findings.size(); ++i) {
    const Finding& f = report.findings[i];
    if (f.verdict == Verdict::undecided)
      undecided.push_back(i);
    else if (!is_fine(f.verdict) && f.verdict != Verdict::inherited)
      roots.push_back(i);
  }
  return roots.empty() ? undecided : roots;
}

// In exact arithmetic a strategy must not change a bit, but for a ring's attention, which joins rounded sums
// (docs/semantics.md E).
bool RungCheck::is_bitwise(const Rung& rung) const {
  const bool joins = rung.parallel.cp > 1 && rung.parallel.context == ContextMode::ring;
  return rung.work.precision == "exact" && !joins && opponents_.subject.computes_exactly();
}

std::vector<Policy> RungCheck::policies_for(const Rung& rung) const {
  return is_bitwise(rung) ? std::vector{load_policy("bitwise")} : options_.policies;
}

Report RungCheck::compare(RungResult& result, const Asked& asked) {
  const Log log = log_of(options_.folder / folder_of(result.rung));
  auto subject = open_dump(result.subject.string(), {.log = log}),
       reference = open_dump(result.reference.string(), {.log = log});
  if (!subject->unreadable.empty()) throw Error("{}", subject->unreadable.front());
  DiffOptions options;
  options.log = log;
  options.rules = options_.rules;  // they note their use
  apply_layouts(subject, reference, options.rules.layout());
  options.policies = asked.policies;
  options.only = asked.only;
  options.threads = options_.threads;
  options.last_step = asked.last_step;
  options.explain = asked.explain;
  if (asked.explain && opponents_.reference.reorders())
    options.noise = [&] { return noise_for(result.rung); };
  options.error_maps = asked.explain ? most_error_maps : 0;
  const Parallel& p = result.rung.parallel;
  const Work& work = result.rung.work;
  const std::int64_t depth = work.model.empty() ? 0 : load_model(work.model).losses.mtp_depth;
  for (const auto& [size, of] :
       {std::pair{"ep", p.ep}, {"etp", p.etp}, {"sequences", work.sequences}, {"mtp_depth", depth}}) {
    if (of > 1) options.sizes.push_back({size, of});
  }
  options.repeat = fmt::format(
      "assay diff {} {}{}{}", shell_quoted(result.subject.string()), shell_quoted(result.reference.string()),
      is_bitwise(result.rung) ? " --tolerance bitwise" : options_.tolerances_as_given,
      options_.rules_as_given);
  Report report = diff(*subject, *reference, options);
  report.command = options.repeat;
  if (result.rung.kind == Rung::Kind::single && !asked.explain)
    result.configuration = check_configuration(report, *subject, *reference);
  return report;
}

// First whether anything differs; what does is explained up to the first step in which it did.
void RungCheck::judge(RungResult& result) {
  try {
    result.rule = is_bitwise(result.rung) ? "bitwise" : options_.policies.front().name;
    const Report report = compare(result, {.policies = policies_for(result.rung)});
    count(result, report);
    result.state = report.exit_status() == 0 ? State::passed : State::failed;
    result.reason = renamed(report);
    if (result.reason.empty()) result.reason = cut_short(report);
    if (result.reason.empty() && report.compared_nothing())
      result.reason = "nothing of its dump could be compared";
    if (!result.reason.empty()) result.state = State::trouble;
    if (result.state == State::failed)
      explain(result, first_failing_step(report));
    else if (result.state == State::passed)
      add_exemptions(result, report);
  } catch (const std::exception& e) {
    result.state = State::trouble;
    result.reason = e.what();
  }
  log_of(options_.folder / folder_of(result.rung))
      .info("judged by {}: {}{}{}", result.rule.empty() ? "no rule" : result.rule, name(result.state),
            result.exempt, result.reason.empty() ? "" : ": " + result.reason);
}

void RungCheck::explain(RungResult& result, std::int64_t first_failing_step) {
  const std::vector<Policy> policies = policies_for(result.rung);
  log_of(options_.folder / folder_of(result.rung))
      .debug("fails first in step {}: explained up to it", first_failing_step);
  Report report = compare(result, {.policies = policies, .last_step = first_failing_step, .explain = true});
  if (roots_of(report).empty()) report = compare(result, {.policies = policies, .explain = true});
  report.verb = "align";
  count(result, report);
  if (roots_of(report).empty()) {
    result.state = State::passed;
    for (PhaseResult& phase : result.phases) phase.inherited = 0;
    add_exemptions(result, report);
    return;
  }
  result.reason = report.summary();
  result.report = std::move(report);
  if (is_bitwise(result.rung)) diagnose_by_tolerance(result);
}

// Which model of a mistake makes a tensor cannot be told bit for bit: it rounds elsewhere.
void RungCheck::diagnose_by_tolerance(RungResult& result) {
  constexpr std::size_t most = 3;
  const std::vector<std::size_t> roots = roots_of(*result.report);
  for (std::size_t k = 0; k < std::min(most, roots.size()); ++k) {
    Finding& root = result.report->findings[roots[k]];
    if (!root.diagnoses.empty()) continue;
    Report of_it = compare(result, {.policies = options_.policies, .explain = true, .only = root.name});
    if (!of_it.findings.empty()) root.diagnoses = std::move(of_it.findings.front().diagnoses);
  }
}

}  // namespace assay::align
