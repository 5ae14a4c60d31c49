#include <fmt/format.h>

#include <filesystem>
#include <map>
#include <set>
#include <sstream>

#include "assay/compare/diff.h"
#include "assay/compare/result/printable.h"
#include "assay/dumps/fingerprint.h"
#include "assay/dumps/io/whole_file.h"
#include "assay/golden/error.h"
#include "log.h"
#include "output.h"
#include "shared_options.h"
#include "verb.h"

namespace assay {
namespace {

// What both parts are told of the run.
struct BaselineRun {
  std::string dump, rules, dtype_hint, raw;
};

struct AcceptVerb : BaselineRun {
  std::string file, reason, only;
};

struct BaselineCheckVerb : BaselineRun {
  std::string file;
  std::vector<std::string> tolerances = {"bitwise"};
  bool accept_statistics = false;
  int threads = 0;
  OutputOptions output;
};

void add_run(Options& options, BaselineRun& run) {
  options.option("dump", run.dump, "file or folder of the run").required().holds("DUMP");
  add_rules(options, run.rules, "TOML file, as diff takes it");
  add_dtype_hint(options, run.dtype_hint);
  add_raw(options, run.raw);
}

constexpr std::size_t most_losses = 10;

using Loss = Fingerprint::Loss;

std::unique_ptr<Dump> opened(const BaselineRun& run, const Rules& rules) {
  auto dump = open_dump(run.dump, open_options(run.dtype_hint, run.raw));
  apply_layout(*dump, rules.layout());
  return dump;
}

std::size_t changed_lines(const std::string& before, const std::string& now) {
  std::multiset<std::string> lines;
  std::string line;
  for (std::istringstream in(before); std::getline(in, line);) lines.insert(line);
  std::size_t changed = 0;
  for (std::istringstream in(now); std::getline(in, line);) {
    if (const auto at = lines.find(line); at != lines.end())
      lines.erase(at);
    else
      ++changed;
  }
  return changed;
}

void declare(AcceptVerb& verb, Options& options) {
  add_run(options, verb);
  options.option("-o,--output", verb.file, "a new file, or a baseline to replace").required().holds("FILE");
  options.option("--reason", verb.reason, "why these numbers are right; needed where they replace others")
      .holds("TEXT");
  add_only(options, verb.only);
}

int run(const AcceptVerb& verb, const Options&) {
  if (verb.file == "-") throw Error("-o -: a baseline is a file that a repository keeps; expected its name");
  if (is_below(verb.file, verb.dump))
    throw Error(
        "-o {}: lies in the dump {}, and would be read as part of it the next time; expected a place outside "
        "of it",
        verb.file, verb.dump);
  const Rules rules = load_rules(verb.rules);
  std::error_code none;
  const bool is_there = std::filesystem::exists(verb.file, none);
  std::optional<Fingerprint> known;
  if (is_there) known = read_fingerprint(verb.file);
  Fingerprint f = fingerprint_of(*opened(verb, rules), verb.only);
  if (known) {
    f.reason = known->reason;
    const std::string old_text = to_text(*known);
    if (to_text(f) == old_text) {
      fmt::print("{}: unchanged, {} tensors\n", printable(verb.file),
                 grouped(static_cast<std::int64_t>(f.tensors.size())));
      return 0;
    }
    if (verb.reason.empty())
      throw Error(
          "{}: holds other numbers ({} lines differ); expected --reason TEXT, which says why the new ones "
          "are right, or another file",
          verb.file, changed_lines(old_text, to_text(f)));
  }
  f.reason = verb.reason;
  write_whole(verb.file, to_text(f));
  for (std::size_t i = 0; i < std::min(f.losses.size(), most_losses); ++i)
    fmt::print("{}  {}\n", printable(f.losses[i].name), format_value(f.losses[i].dtype, f.losses[i].value));
  if (f.losses.size() > most_losses) fmt::print("and {} more\n", f.losses.size() - most_losses);
  fmt::print("wrote {}: {} tensors, {} losses and gradient norms\n", printable(verb.file),
             grouped(static_cast<std::int64_t>(f.tensors.size())), f.losses.size());
  return 0;
}

// What differs; one line if nothing does.
std::string losses_text(const std::vector<Loss>& accepted, const std::vector<Loss>& now) {
  if (accepted.empty()) return "";
  std::map<std::string, const Loss*> by_name;
  for (const Loss& loss : now) by_name[loss.name] = &loss;
  std::string out;
  std::size_t different = 0;
  for (const Loss& a : accepted) {
    const auto at = by_name.find(a.name);
    const Loss* b = at == by_name.end() ? nullptr : at->second;
    if (b != nullptr && b->value == a.value && b->dtype == a.dtype) continue;
    if (++different > most_losses) continue;
    out += fmt::format("  {}  accepted {}, now {}\n", printable(a.name), format_value(a.dtype, a.value),
                       b == nullptr ? "none that is finite" : format_value(b->dtype, b->value));
  }
  if (different == 0) return fmt::format("losses and gradient norms: all {} equal\n", accepted.size());
  if (different > most_losses) out += fmt::format("  and {} more\n", different - most_losses);
  return fmt::format("losses and gradient norms: {} of {} differ\n", different, accepted.size()) + out;
}

void declare(BaselineCheckVerb& verb, Options& options) {
  add_run(options, verb);
  options.option("file", verb.file, "the baseline").required().holds("FILE");
  add_tolerances(options, verb.tolerances,
                 "bitwise (default), or another policy for what hashes do not settle; the first decides");
  options.flag("--accept-statistics", verb.accept_statistics,
               "tensors with other bits pass where their norms agree within the tolerance");
  add_threads(options, verb.threads);
  add_output(options, verb.output);
}

// Of one tensor: diff takes a baseline for a side, and all options that decide a verdict here.
std::string repeated(const Options& given) {
  const std::string by_default = given.is_given("--tolerance") ? "" : " --tolerance bitwise";
  return given.repeated_command("assay diff") + by_default;
}

int run(const BaselineCheckVerb& verb, const Options& given) {
  check_outputs(verb.output, {verb.dump, verb.file, verb.rules});
  const Fingerprint accepted = read_fingerprint(verb.file);
  DiffOptions options;
  options.policies = load_policies(verb.tolerances);
  options.rules = load_rules(verb.rules);
  options.only = accepted.only;
  options.threads = thread_count(verb.threads);
  options.log = program_log();
  options.accept_statistics = verb.accept_statistics;
  options.repeat = repeated(given);
  const auto dump = opened(verb, options.rules), baseline = open_dump(verb.file);
  Report report = diff(*dump, *baseline, options);
  report.verb = "baseline";
  if (!accepted.reason.empty()) report.notes.push_back("accepted because: " + accepted.reason);
  return write_report(std::move(report), verb.output,
                      losses_text(accepted.losses, losses_of(*dump, accepted.only)));
}

constexpr Verb parts[] = {
    {"accept", "write what is to be remembered of a run: losses, norms, hashes",
     "assay baseline accept run -o baseline.json --reason 'new kernels'", declared<AcceptVerb>},
    {"check", "judge a run by a baseline", "assay baseline check run baseline.json --junit report.xml",
     declared<BaselineCheckVerb>}};

}  // namespace

namespace verbs {
extern constexpr Verb baseline = {"baseline",
                                  "keep a run's numbers in a small file, and hold later runs against it",
                                  "assay baseline accept run -o baseline.json", nullptr, parts};
}

}  // namespace assay
