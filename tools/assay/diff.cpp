#include "assay/compare/diff.h"

#include <fmt/format.h>

#include <algorithm>
#include <future>
#include <memory>
#include <optional>
#include <utility>

#include "assay/compare/calls/case_writer.h"
#include "assay/compare/result/printable.h"
#include "assay/golden/error.h"
#include "output.h"
#include "processes.h"
#include "shared_options.h"
#include "terminal.h"
#include "verb.h"

namespace assay {
namespace {

struct DiffVerb {
  std::string actual, reference, rules, only;
  std::string dtype_hint;
  std::vector<std::string> raw;  ///< for both sides, or one for each
  std::vector<std::string> tolerances = {"telechat3"};
  std::vector<std::string> reruns;
  bool accept_statistics = false, accept_sketches = false;
  bool isolate = true, end_to_end = false;
  std::string cases;
  int threads = 0;
  bool alone = false;  ///< not with the other processes of mpirun
  bool exact_sums = false;
  OutputOptions output;
};

// Both sides and reruns of the reference, opened.
struct Dumps {
  std::unique_ptr<Dump> actual, reference;
  std::vector<std::unique_ptr<Dump>> reruns = {};
};

std::vector<std::string> inputs_of(const DiffVerb& verb) {
  std::vector<std::string> inputs = {verb.actual, verb.reference, verb.rules};
  inputs.insert(inputs.end(), verb.reruns.begin(), verb.reruns.end());
  return inputs;
}

Dumps open_dumps(const DiffVerb& verb, DiffOptions& options) {
  options.policies = load_policies(verb.tolerances);
  options.rules = load_rules(verb.rules);
  if (verb.raw.size() > 2)
    throw Error("--raw is given {} times; expected one for both sides, or one for each", verb.raw.size());
  const auto open = [&](const std::string& path, bool first) {
    const std::string raw = verb.raw.empty() ? std::string() : first ? verb.raw.front() : verb.raw.back();
    OpenOptions how = open_options(verb.dtype_hint, raw);
    how.log = options.log;
    return open_dump(path, how);
  };
  // At the same time: an HDF5 file waits for its worker to start.
  std::future reference = std::async(std::launch::async, open, verb.reference, false);
  Dumps dumps;
  dumps.actual = open(verb.actual, true);
  dumps.reference = reference.get();
  apply_layouts(dumps.actual, dumps.reference, options.rules.layout());
  for (const std::string& path : verb.reruns) {
    std::error_code none;
    if (std::filesystem::equivalent(path, verb.actual, none))
      throw Error("--rerun {} is the file that is judged; expected a rerun of the reference", path);
  }
  for (const std::string& path : verb.reruns)
    apply_layout(*dumps.reruns.emplace_back(open(path, false)), options.rules.layout());
  return dumps;
}

Report compare(const Dumps& dumps, DiffOptions& options) {
  Progress progress("comparing", Progress::Unit::bytes);
  std::optional<Progress> judging;  // its time begins with the first
  if (options.team.rank == 0) {
    options.judging = [&](std::size_t done, std::size_t total, const std::string& name) {
      if (!judging) judging.emplace("judging", Progress::Unit::items);
      judging->show(done, total, name);
    };
    options.progress = [&](double done, double total, const std::string& name) {
      progress.show(static_cast<std::size_t>(done), static_cast<std::size_t>(total), name);
    };
  }
  return diff(*dumps.actual, *dumps.reference, options);
}

// What reruns of the reference differ from it by.
RerunNoise noise_of(const Dumps& dumps, const DiffOptions& options) {
  RerunNoise noise;
  for (const std::unique_ptr<Dump>& rerun : dumps.reruns)
    add_rerun(noise,
              bitwise_difference(*rerun, *dumps.reference, options.rules, options.threads, options.log));
  return noise;
}

void declare(DiffVerb& verb, Options& options) {
  options.option("actual", verb.actual, "file or folder to judge").required().holds("ACTUAL");
  options.option("reference", verb.reference, "file or folder to judge it by").required().holds("REFERENCE");
  add_rules(options, verb.rules,
            "TOML file: rename, operator, count, tolerance, ignore, mesh, renumber, layout");
  add_tolerances(options, verb.tolerances,
                 "telechat3 (default), torch, bitwise or a .toml file; the first decides");
  add_only(options, verb.only);
  options.flag("--exact-sums", verb.exact_sums, "sums behind means and norms without any rounding; slower");
  options.flag("--accept-statistics", verb.accept_statistics,
               "tensors of which only statistics were recorded pass where these agree");
  options.flag("--accept-sketches", verb.accept_sketches,
               "tensors of which only a sketch was recorded pass where these agree");
  options.flag("--end-to-end", verb.end_to_end,
               "the tolerance alone decides, however much rounding was amplified on the way");
  options.flag("--isolate", verb.isolate, "the default: judge every tensor by what it was made of, too");
  options
      .option("--cases", verb.cases, "a new folder for calls that are wrong on their own inputs, for check")
      .holds("DIR")
      .not_repeated();
  options
      .option("--rerun", verb.reruns,
              "the reference again, its sums in other orders: their difference is noise")
      .holds("DUMP");
  add_threads(options, verb.threads);
  options.flag("--alone", verb.alone, "judge everything here, also in a process that mpirun started")
      .not_repeated();
  add_dtype_hint(options, verb.dtype_hint);
  options
      .option("--raw", verb.raw, "what files of no known format hold: float32:4,8; twice if the sides differ")
      .holds("T:N,N");
  add_output(options, verb.output);
}

int run_in(const Processes& processes, const DiffVerb& verb, const Options& given) {
  OutputOptions output = verb.output;
  // Open MPI gives the first process a terminal, wherever its output goes.
  if (processes.team().size > 1 && output.color == "auto") output.color = "never";
  const bool end_to_end = verb.end_to_end || !verb.isolate;
  if (end_to_end && !verb.cases.empty())
    throw Error("--cases writes calls that are wrong on their own inputs; expected none with --end-to-end");
  if (!verb.cases.empty()) expect_new_folder(verb.cases);
  DiffOptions options;
  options.only = verb.only;
  options.threads =
      std::max(1, thread_count(verb.threads) / (verb.threads > 0 ? 1 : processes.on_this_machine()));
  options.exact_sums = verb.exact_sums;
  options.accept_statistics = verb.accept_statistics;
  options.accept_sketches = verb.accept_sketches;
  options.end_to_end = end_to_end;
  options.cases = verb.cases;
  options.error_maps = error_maps(verb.output);
  options.repeat = given.repeated_command("assay diff");
  options.team = processes.team();
  options.log = processes.log();
  Dumps dumps;
  std::string problem;
  try {
    if (processes.is_first()) check_outputs(verb.output, inputs_of(verb));
    dumps = open_dumps(verb, options);
  } catch (const std::exception& e) {
    problem = sentence(e);
  }
  if (!processes.can_begin(problem)) return 2;
  if (!verb.reruns.empty()) options.noise = [&] { return noise_of(dumps, options); };
  try {
    Report report = compare(dumps, options);
    return processes.is_first() ? write_report(std::move(report), output) : 0;
  } catch (const std::exception& e) {
    processes.give_up(sentence(e));
    throw;
  }
}

// Trouble is said while the job of MPI lives: the launcher ends this process when another one has ended with
// its status.
int run(const DiffVerb& verb, const Options& given) {
  const Processes processes(verb.alone);
  try {
    return run_in(processes, verb, given);
  } catch (const std::exception& e) {
    return trouble(e);
  }
}

}  // namespace

namespace verbs {
extern constexpr Verb diff = {"diff", "judge two files or dumps, tensor by tensor",
                              "assay diff npu_dump gpu_dump --junit report.xml", declared<DiffVerb>};
}

}  // namespace assay
