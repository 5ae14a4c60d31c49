#include "assay/compare/diff.h"

#include <fmt/format.h>

#include <algorithm>
#include <future>
#include <memory>
#include <utility>

#include "assay/compare/result/printable.h"
#include "assay/golden/error.h"
#include "output.h"
#include "processes.h"
#include "terminal.h"
#include "verbs.h"

namespace assay {
namespace {

// The command as it was given, without what only says where reports go.
std::string command(const DiffVerb& verb) {
  std::string line = fmt::format("assay diff {} {}", shell_quoted(verb.actual), shell_quoted(verb.reference));
  if (!verb.rules.empty()) line += " --rules " + shell_quoted(verb.rules);
  if (!verb.dtype_hint.empty()) line += " --dtype-hint " + shell_quoted(verb.dtype_hint);
  if (verb.exact_sums) line += " --exact-sums";
  for (const std::string& raw : verb.raw) line += " --raw " + shell_quoted(raw);
  if (verb.tolerances != DiffVerb().tolerances) {
    for (const std::string& t : verb.tolerances) line += " --tolerance " + shell_quoted(t);
  }
  if (verb.accept_statistics) line += " --accept-statistics";
  if (verb.isolate) line += " --isolate";
  return line;
}

// Both sides, opened.
struct Dumps {
  std::unique_ptr<Dump> actual, reference;
};

Dumps open_dumps(const DiffVerb& verb, DiffOptions& options) {
  options.policies = load_policies(verb.tolerances);
  if (!verb.rules.empty()) options.rules = Rules::load(verb.rules);
  if (verb.raw.size() > 2)
    throw Error("--raw is given {} times; expected one for both sides, or one for each", verb.raw.size());
  const auto open = [&](const std::string& path, bool first) {
    const std::string raw = verb.raw.empty() ? std::string() : first ? verb.raw.front() : verb.raw.back();
    return open_dump(path, open_options(verb.dtype_hint, raw));
  };
  // At the same time: an HDF5 file waits for its worker to start.
  std::future reference = std::async(std::launch::async, open, verb.reference, false);
  Dumps dumps;
  dumps.actual = open(verb.actual, true);
  dumps.reference = reference.get();
  for (Dump* dump : {dumps.actual.get(), dumps.reference.get()}) apply_layout(*dump, options.rules.layout());
  return dumps;
}

Report compare(const Dumps& dumps, DiffOptions& options) {
  Progress progress("comparing", Progress::Unit::bytes);
  if (options.team.rank == 0) {
    options.progress = [&](double done, double total, const std::string& name) {
      progress.show(static_cast<std::size_t>(done), static_cast<std::size_t>(total), name);
    };
  }
  return diff(*dumps.actual, *dumps.reference, options);
}

}  // namespace

int run(const DiffVerb& verb) {
  const Processes processes(verb.alone);
  OutputOptions output = verb.output;
  // Open MPI gives the first process a terminal, wherever its output goes.
  if (processes.team().size > 1 && output.color == "auto") output.color = "never";
  DiffOptions options;
  options.only = verb.only;
  options.threads =
      std::max(1, thread_count(verb.threads) / (verb.threads > 0 ? 1 : processes.on_this_machine()));
  options.exact_sums = verb.exact_sums;
  options.accept_statistics = verb.accept_statistics;
  options.isolate = verb.isolate;
  options.error_maps = error_maps(verb.output);
  options.repeat = command(verb);
  options.team = processes.team();
  Dumps dumps;
  std::string problem;
  try {
    if (processes.is_first()) check_outputs(verb.output, {verb.actual, verb.reference, verb.rules});
    dumps = open_dumps(verb, options);
  } catch (const std::exception& e) {
    problem = sentence(e);
  }
  if (!processes.can_begin(problem)) return 2;
  try {
    Report report = compare(dumps, options);
    return processes.is_first() ? write_report(std::move(report), output) : 0;
  } catch (const std::exception& e) {
    processes.give_up(sentence(e));
    throw;
  }
}

}  // namespace assay
