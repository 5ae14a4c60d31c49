#include <fmt/format.h>

#include <cstdio>
#include <filesystem>

#include "assay/align/ladder/ladder_report.h"
#include "assay/align/ladder/plan_file.h"
#include "assay/compare/report.h"
#include "assay/golden/error.h"
#include "output.h"
#include "verbs.h"

namespace assay {
namespace {

align::PlanFile plan_of(const AlignVerb& verb) {
  align::PlanFile plan = verb.plan.empty() ? align::PlanFile() : align::load_plan(verb.plan);
  if (!verb.model.empty()) plan.work.model = verb.model;
  if (plan.work.model.empty() && verb.plan.empty())
    throw Error(
        "there is neither a plan nor a --model; expected one, as in assay align --model telechat3-105b-tiny "
        "--parallel tp=2");
  if (!verb.parallel.empty()) plan.target = align::parse_parallel(verb.parallel);
  if (!verb.precision.empty()) plan.work.precision = verb.precision;
  const auto take = [](const std::optional<long long>& from, std::int64_t& to) {
    if (from) to = *from;
    return from.has_value();
  };
  take(verb.steps, plan.work.steps);
  take(verb.length, plan.work.length);
  take(verb.sequences, plan.work.sequences);
  take(verb.seed, plan.work.seed);
  take(verb.reruns, plan.reruns);
  plan.states_micro_batches |= take(verb.micro_batches, plan.work.micro_batches);
  if (!plan.states_micro_batches) plan.work.micro_batches = usual_micro_batches(plan.work, plan.target);
  if (!verb.fault.empty()) {
    if (plan.subject.kind != align::ProviderSettings::Kind::replay)
      throw Error("--fault {}: the subject is no replay, in which alone a fault can be planted", verb.fault);
    plan.subject.fault = verb.fault;
  }
  if (!verb.command.empty()) {
    plan.subject = {.kind = align::ProviderSettings::Kind::command, .command = {.line = verb.command}};
    plan.subject.command.timeout = std::chrono::seconds(verb.timeout);
  }
  return plan;
}

std::filesystem::path folder_of(const AlignVerb& verb) {
  std::filesystem::path folder = verb.work.empty() ? "assay-align" : verb.work;
  std::error_code problem;
  std::filesystem::create_directories(folder, problem);
  if (problem)
    throw Error("{}: cannot be made: {}; give another folder with --work", folder.string(),
                problem.message());
  return folder;
}

}  // namespace

int run(const AlignVerb& verb) {
  const align::PlanFile file = plan_of(verb);
  align::LadderPlan plan = {file.rungs.empty() ? ladder_of(file.work, file.target) : file.rungs};
  const auto subject = make_provider(file.subject), reference = make_provider(file.reference);
  drop_repeats(plan.rungs, *subject);
  const align::LadderHead head = {verb.output.command,
                                  subject->text(),
                                  reference->text(),
                                  file.work.model.empty() ? "the subject's model" : file.work.model,
                                  to_string(file.rungs.empty() ? file.target : file.rungs.back().parallel),
                                  file.work.precision,
                                  ""};
  if (verb.plan_only) {
    fmt::print("{}", plan_text(plan, head));
    return 0;
  }
  check_outputs(verb.output, {verb.plan, verb.rules, file.subject.path, file.reference.path});
  align::CheckOptions options = {.folder = folder_of(verb),
                                 .policies = load_policies(verb.tolerances),
                                 .rules = {},
                                 .threads = thread_count(verb.threads),
                                 .keep = verb.keep,
                                 .reruns = file.reruns};
  if (!verb.rules.empty()) options.rules = Rules::load(verb.rules);
  plan.jobs = static_cast<std::size_t>(options.threads);
  plan.cache = verb.again ? std::filesystem::path() : options.folder / "passed";
  // The stages as they come: progress, where a report takes standard output.
  std::FILE* const log = takes_stdout(verb.output) ? stderr : stdout;
  fmt::print(log, "{} to {}: {} stages, {}; subject {}, reference {}\n", head.model,
             head.target.empty() ? "a single device" : head.target, plan.rungs.size(), head.precision,
             printable(head.subject), printable(head.reference));
  fmt::print(log, "  {:<26} {:>5}  {:>11} {:>11} {:>11}\n", "stage", "ranks", "forward", "backward",
             "optimizer");
  const align::LadderResult result =
      walk(plan, {*subject, *reference}, options, [&](const align::Rung&, const align::RungResult* r) {
        if (r == nullptr) return;
        fmt::print(log, "{}\n", rung_line(*r));
        std::fflush(log);
      });
  using Files = std::vector<std::string>;
  write_reports({.json = [&] { return to_json(result, head); },
                 .jsonl = {},
                 .csv = {},
                 .html = [&] { return to_html(result, head); },
                 .junit = [&] { return to_junit(result, head); },
                 .markdown = [&] { return to_markdown(result, head); },
                 .github = [&] { return to_github_annotations(result); },
                 .terminal = [&](const Files& written) { return ladder_text(result, written); }},
                verb.output);
  return result.exit_status();
}

}  // namespace assay
