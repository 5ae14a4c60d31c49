#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <span>

#include "assay/align/ladder/ladder_report.h"
#include "assay/align/ladder/plan_file.h"
#include "assay/compare/report/report.h"
#include "assay/compare/result/printable.h"
#include "assay/dumps/io/checksum.h"
#include "assay/dumps/io/file.h"
#include "assay/golden/error.h"
#include "output.h"
#include "verbs.h"

namespace assay {
namespace {

// Stages that a plan states have their work with them.
void check_stated(const AlignVerb& verb) {
  for (const auto& [option, is_given] : {std::pair{"--model", !verb.model.empty()},
                                         {"--parallel", !verb.parallel.empty()},
                                         {"--precision", !verb.precision.empty()},
                                         {"--steps", verb.steps.has_value()},
                                         {"--micro-batches", verb.micro_batches.has_value()},
                                         {"--sequences", verb.sequences.has_value()},
                                         {"--length", verb.length.has_value()},
                                         {"--seed", verb.seed.has_value()}}) {
    if (is_given)
      throw Error("{}: the plan {} states its own [[stage]]s; change it there, or take them out for a ladder",
                  option, verb.plan);
  }
}

// Stages at the same time: each holds the ranks of a replay in memory.
constexpr int most_jobs = 4;

align::PlanFile plan_of(const AlignVerb& verb) {
  align::PlanFile plan = verb.plan.empty() ? align::PlanFile() : align::load_plan(verb.plan);
  if (!plan.rungs.empty()) check_stated(verb);
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
  return verb.work.empty() ? "assay-align" : verb.work;
}

// A folder that no other alignment works in.
class WorkFolder {
 public:
  explicit WorkFolder(const std::filesystem::path& folder) {
    std::error_code problem;
    std::filesystem::create_directories(folder, problem);
    if (problem)
      throw Error("{}: cannot be made: {}; give another folder with --work", folder.string(),
                  problem.message());
    const std::filesystem::path lock = folder / "work.lock";
    file_ = ::open(lock.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0666);
    if (file_ < 0)
      throw Error("{}: cannot be written: {}; give another folder with --work", lock.string(),
                  std::strerror(errno));
    if (::flock(file_, LOCK_EX | LOCK_NB) != 0) {
      ::close(file_);
      throw Error("{}: another alignment works in it; wait for it, or give another folder with --work",
                  folder.string());
    }
  }
  WorkFolder(const WorkFolder&) = delete;
  WorkFolder& operator=(const WorkFolder&) = delete;
  ~WorkFolder() { ::close(file_); }

 private:
  int file_ = -1;
};

// What else decides whether a stage passes: a rule that was lax, or another program, says nothing of today.
std::string judged_by(const AlignVerb& verb, const align::CheckOptions& options) {
  std::string all = fmt::format("reruns {}", options.reruns);
  for (const Policy& p : options.policies) all += fmt::format("\n{} {}", p.name, p.table_sha256);
  std::vector<std::string> files = {"/proc/self/exe"};
  if (!verb.rules.empty()) files.push_back(verb.rules);
  for (const std::string& file : files)
    all += "\n" + sha256(std::as_bytes(std::span(MappedFile::open(file)->text())));
  return all;
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
                                  file.work.precision};
  if (verb.plan_only) {
    fmt::print("{}", plan_text(plan, head));
    return 0;
  }
  subject->check(plan.rungs);
  const std::filesystem::path folder = folder_of(verb);
  check_outputs(verb.output, {verb.plan, verb.rules, file.subject.path, file.reference.path});
  for (const std::string* output :
       {&verb.output.json, &verb.output.html, &verb.output.junit, &verb.output.markdown}) {
    if (!output->empty() && *output != "-" &&
        std::filesystem::weakly_canonical(*output) == std::filesystem::weakly_canonical(folder))
      throw Error("{}: is the folder of the stages (--work); expected another place for a report", *output);
  }
  const WorkFolder locked(folder);
  align::CheckOptions options = {.folder = folder,
                                 .policies = load_policies(verb.tolerances),
                                 .rules = {},
                                 .threads = thread_count(verb.threads),
                                 .keep = verb.keep,
                                 .reruns = file.reruns};
  if (!verb.rules.empty()) options.rules = Rules::load(verb.rules);
  if (!verb.rules.empty()) options.rules_as_given = " --rules " + shell_quoted(verb.rules);
  if (verb.tolerances != AlignVerb().tolerances) {
    for (const std::string& t : verb.tolerances)
      options.tolerances_as_given += " --tolerance " + shell_quoted(t);
  }
  plan.jobs = static_cast<std::size_t>(std::min(options.threads, most_jobs));
  plan.cache = verb.again ? std::filesystem::path() : options.folder / "passed.txt";
  plan.judged_by = judged_by(verb, options);
  // The stages as they come: progress, where a report takes standard output.
  std::FILE* const log = takes_stdout(verb.output) ? stderr : stdout;
  fmt::print(log, "{} to {}: {} stages, {}; subject {}, reference {}\n", printable(head.model),
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
