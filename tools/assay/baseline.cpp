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
#include "output.h"
#include "verbs.h"

namespace assay {
namespace {

constexpr std::size_t most_losses = 10;

using Loss = Fingerprint::Loss;

std::unique_ptr<Dump> opened(const BaselineVerb& verb, const Rules& rules) {
  auto dump = open_dump(verb.dump, open_options(verb.dtype_hint, verb.raw));
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

int accept(const BaselineVerb& verb) {
  if (verb.file == "-") throw Error("-o -: a baseline is a file that a repository keeps; expected its name");
  if (is_below(verb.file, verb.dump))
    throw Error(
        "-o {}: lies in the dump {}, and would be read as part of it the next time; expected a place outside "
        "of it",
        verb.file, verb.dump);
  const Rules rules = verb.rules.empty() ? Rules() : Rules::load(verb.rules);
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

// Of one tensor: diff takes a baseline for a side.
std::string repeat(const BaselineVerb& verb) {
  std::string line = fmt::format("assay diff {} {}", shell_quoted(verb.dump), shell_quoted(verb.file));
  if (!verb.rules.empty()) line += " --rules " + shell_quoted(verb.rules);
  for (const std::string& t : verb.tolerances) line += " --tolerance " + shell_quoted(t);
  if (verb.accept_statistics) line += " --accept-statistics";
  return line;
}

int check(const BaselineVerb& verb) {
  check_outputs(verb.output, {verb.dump, verb.file, verb.rules});
  const Fingerprint accepted = read_fingerprint(verb.file);
  DiffOptions options;
  options.policies = load_policies(verb.tolerances);
  if (!verb.rules.empty()) options.rules = Rules::load(verb.rules);
  options.only = accepted.only;
  options.threads = thread_count(verb.threads);
  options.accept_statistics = verb.accept_statistics;
  options.repeat = repeat(verb);
  const auto dump = opened(verb, options.rules), baseline = open_dump(verb.file);
  Report report = diff(*dump, *baseline, options);
  report.verb = "baseline";
  if (!accepted.reason.empty()) report.notes.push_back("accepted because: " + accepted.reason);
  return write_report(std::move(report), verb.output,
                      losses_text(accepted.losses, losses_of(*dump, accepted.only)));
}

}  // namespace

int run(const BaselineVerb& verb) {
  return verb.accepts ? accept(verb) : check(verb);
}

}  // namespace assay
