#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <optional>
#include <span>

#include "assay/align/ladder/ladder_report.h"
#include "assay/align/ladder/plan_file.h"
#include "assay/compare/report/report.h"
#include "assay/compare/result/printable.h"
#include "assay/compare/result/version.h"
#include "assay/config/compare.h"
#include "assay/dumps/io/checksum.h"
#include "assay/dumps/io/file.h"
#include "assay/golden/error.h"
#include "log.h"
#include "output.h"
#include "program.h"
#include "shared_options.h"
#include "verb.h"

namespace assay {
namespace {

struct AlignVerb {
  std::string plan, model, parallel, precision, fault, command, rules, work;
  std::optional<long long> steps, micro_batches, sequences, length, seed, reruns;
  long long timeout = 600;  ///< seconds
  std::vector<std::string> tolerances = {"telechat3"};
  int threads = 0;
  bool plan_only = false, keep = false, again = false, accepts_other_bits = false;
  OutputOptions output;
};

using LadderFormat = ReportFormat<align::LadderResult, align::LadderHead>;

// In the order of --help.
std::span<const LadderFormat> ladder_formats() {
  static constexpr LadderFormat formats[] = {
      {"json", "write the report as JSON to this file; - is standard output", align::to_json},
      {"html", "one page with the ladder, the ranks and what diverged", align::to_html},
      {"junit", "JUnit XML, one test case per stage and phase", align::to_junit},
      {"markdown", "a summary in Markdown", align::to_markdown},
  };
  return formats;
}

// Stages that a plan states have their work with them.
void check_stated(const std::string& plan, const Options& given) {
  for (const char* option : {"--model", "--parallel", "--precision", "--steps", "--micro-batches",
                             "--sequences", "--length", "--seed"}) {
    if (given.is_given(option))
      throw Error("{}: the plan {} states its own [[stage]]s; change it there, or take them out for a ladder",
                  option, plan);
  }
}

// Stages at the same time: each holds the ranks of a replay in memory.
constexpr int most_jobs = 4;

align::PlanFile plan_of(const AlignVerb& verb, const Options& given) {
  align::PlanFile plan = verb.plan.empty() ? align::PlanFile() : align::load_plan(verb.plan);
  if (!plan.rungs.empty()) check_stated(verb.plan, given);
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
  plan.accepts_other_bits |= verb.accepts_other_bits;
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

// Stage 0: where the files of both sides say something else that changes the numbers, nothing has to run.
std::vector<align::ConfigurationCheck> check_files(const align::PlanFile::ConfigurationFiles& files) {
  std::vector<align::ConfigurationCheck> checks;
  if (files.subject.empty()) return checks;
  const config::Comparison c =
      compare(config::open_side(files.subject), config::open_side(files.reference), files.accepted);
  for (const config::Row& row : c.rows) {
    const bool counts = row.effect == config::Effect::numbers || row.effect == config::Effect::unknown;
    if (!counts) continue;
    checks.push_back({row.key, row.accepted, config::line_of(row), true, row.accepted});
  }
  checks.push_back({"configuration files", true, config::counts_text(c)});
  return checks;
}

// What else decides whether a stage passes: a rule that was lax, or another program, says nothing of today.
std::string judged_by(const AlignVerb& verb, const align::CheckOptions& options) {
  std::string all = fmt::format("reruns {}{}", options.reruns,
                                options.accepts_other_bits ? ", which may have other bits" : "");
  for (const Policy& p : options.policies) all += fmt::format("\n{} {}", p.name, p.table_sha256);
  std::vector<std::string> files = {program_file()};
  if (!verb.rules.empty()) files.push_back(verb.rules);
  for (const std::string& file : files)
    all += "\n" + sha256(std::as_bytes(std::span(MappedFile::open(file)->text())));
  return all;
}

void declare(AlignVerb& verb, Options& options) {
  options.option("plan", verb.plan, "a plan in TOML (docs/align.md)").holds("PLAN").existing_file();
  options.option("--model", verb.model, "what is trained, as replay takes it").holds("M");
  options.option("--parallel", verb.parallel, "the strategy at the top of the ladder").holds("KEY=N,..");
  options.option("--precision", verb.precision, "fp64, fp32, exact (the default), bf16, fp16 or fp8")
      .one_of({"fp64", "fp32", "exact", "bf16", "fp16", "fp8"});
  const auto count = [&](const char* name, std::optional<long long>& value, const char* meaning,
                         long long least) {
    options.option(name, value, meaning).within(least, 1LL << 19).holds("N");
  };
  count("--steps", verb.steps, "training steps; 2 by default, so that optimizer faults show", 1);
  count("--micro-batches", verb.micro_batches, "of each step, over all ranks", 1);
  count("--sequences", verb.sequences, "of a micro-batch", 1);
  count("--length", verb.length, "tokens of a sequence", 1);
  count("--seed", verb.seed, "of weights and tokens", 0);
  count("--reruns", verb.reruns, "of the reference with sums in other orders, for its noise; 2 by default",
        0);
  options.flag("--accept-nondeterminism", verb.accepts_other_bits,
               "other bits on a rerun of the subject are no finding");
  const Option& command =
      options
          .option("--command", verb.command,
                  "the subject; {tp}, {ranks}, {dump}, .. stand for the numbers of a stage")
          .holds("LINE");
  options.option("--timeout", verb.timeout, "seconds that a run of the command may take; 600 by default")
      .within(1LL, 1LL << 19)
      .holds("N")
      .needs(command);
  options
      .option("--fault", verb.fault, "the subject is a replay that does this wrong; assay faults lists them")
      .holds("ID")
      .excludes(command);
  add_rules(options, verb.rules, "of the subject's names and layouts, as diff takes them").existing_file();
  add_tolerances(options, verb.tolerances, "policies where a strategy promises no bits; the first decides");
  options.option("--work", verb.work, "folder for dumps, outputs and what passed; assay-align by default")
      .holds("DIR");
  options.option("--threads", verb.threads, "of stages and comparisons; 0: one per core")
      .within(0LL, 4096LL)
      .holds("N");
  options.flag("--plan-only", verb.plan_only, "print the stages and what they cost, and run nothing");
  options.flag("--keep", verb.keep, "keep the dumps of stages that passed");
  options.flag("--again", verb.again, "run what passed before, too");
  add_reports(options, verb.output, ladder_formats());
}

int run(const AlignVerb& verb, const Options& given) {
  const align::PlanFile file = plan_of(verb, given);
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
    for (const align::ConfigurationCheck& c : check_files(file.configuration))
      fmt::print("{}: {}\n", printable(c.what), c.found);
    fmt::print("{}", plan_text(plan, head));
    return 0;
  }
  subject->check(plan.rungs);
  const std::filesystem::path folder = folder_of(verb);
  check_outputs(verb.output, {verb.plan, verb.rules, file.subject.path, file.reference.path});
  for (const auto& [format, path, shows_error_maps] : verb.output.files) {
    if (!path.empty() && path != "-" &&
        std::filesystem::weakly_canonical(path) == std::filesystem::weakly_canonical(folder))
      throw Error("{}: is the folder of the stages (--work); expected another place for a report", path);
  }
  const WorkFolder locked(folder);
  const Log log = with_log_file(folder / "align.log");
  log.debug("assay {}: {}", version, verb.output.command);
  log.debug("{} stages in {}; subject {}, reference {}", plan.rungs.size(), folder.string(), head.subject,
            head.reference);
  align::CheckOptions options = {.folder = folder,
                                 .policies = load_policies(verb.tolerances),
                                 .rules = load_rules(verb.rules),
                                 .threads = thread_count(verb.threads),
                                 .keep = verb.keep,
                                 .rules_as_given = given.repeated_option("--rules"),
                                 .tolerances_as_given = given.repeated_option("--tolerance"),
                                 .reruns = file.reruns,
                                 .accepts_other_bits = file.accepts_other_bits,
                                 .log = log};
  plan.jobs = static_cast<std::size_t>(std::min(options.threads, most_jobs));
  plan.cache = verb.again ? std::filesystem::path() : options.folder / "passed.txt";
  plan.judged_by = judged_by(verb, options);
  // The stages as they come: progress, where a report takes standard output.
  std::FILE* const stages = takes_stdout(verb.output) ? stderr : stdout;
  fmt::print(stages, "{} to {}: {} stages, {}; subject {}, reference {}\n", printable(head.model),
             head.target.empty() ? "a single device" : head.target, plan.rungs.size(), head.precision,
             printable(head.subject), printable(head.reference));
  fmt::print(stages, "  {:<26} {:>5}  {:>11} {:>11} {:>11}\n", "stage", "ranks", "forward", "backward",
             "optimizer");
  align::LadderResult result;
  std::vector<align::ConfigurationCheck> files = check_files(file.configuration);
  if (std::ranges::all_of(files, &align::ConfigurationCheck::passed)) {
    if (!files.empty()) fmt::print(stages, "  {}: {}\n", files.back().what, files.back().found);
    result = walk(plan, {*subject, *reference}, options, [&](const align::Rung&, const align::RungResult* r) {
      if (r == nullptr) return;
      fmt::print(stages, "{}\n", rung_line(*r));
      std::fflush(stages);
    });
  }
  result.files = std::move(files);
  log.info("{}: exit status {} after {:.3f} s", result.verdict(), result.exit_status(), result.seconds);
  write_reports({.formats = texts_of(ladder_formats(), result, head),
                 .github = [&] { return to_github_annotations(result); },
                 .terminal = [&](const auto& written) { return ladder_text(result, written); }},
                verb.output);
  return result.exit_status();
}

}  // namespace

namespace verbs {
extern constexpr Verb align = {
    "align", "take a subject from a single device to a full strategy, and name the first divergence",
    "assay align --model telechat3-105b-tiny --parallel tp=2,sp=1,pp=2,dp=2,ep=2", declared<AlignVerb>};
}

}  // namespace assay
