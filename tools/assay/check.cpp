#include "assay/compare/check.h"

#include <fmt/format.h>

#include <utility>

#include "assay/compare/calls/case.h"
#include "assay/compare/result/printable.h"
#include "assay/golden/error.h"
#include "output.h"
#include "terminal.h"
#include "verbs.h"

namespace assay {
namespace {

// The options as they were given that decide a verdict.
std::string verdict_options(const CheckVerb& verb) {
  std::string text;
  if (verb.tolerances != CheckVerb().tolerances) {
    for (const std::string& t : verb.tolerances) text += " --tolerance " + shell_quoted(t);
  }
  if (!verb.dtype_hint.empty()) text += " --dtype-hint " + shell_quoted(verb.dtype_hint);
  if (verb.level != CheckVerb().level) text += " --level " + shell_quoted(verb.level);
  if (!verb.accumulator.empty()) text += " --accumulator " + shell_quoted(verb.accumulator);
  if (!verb.intermediate.empty()) text += " --intermediate " + shell_quoted(verb.intermediate);
  if (verb.prove) text += " --prove";
  return text;
}

}  // namespace

int run(const CheckVerb& verb) {
  check_outputs(verb.output, verb.cases);
  CheckOptions options;
  options.policies = load_policies(verb.tolerances);
  options.level = parse_level(verb.level);
  if (options.level == Level::bound) {
    throw Error("--level bound: is of errors; expected report, fp64 or certified, whose values can judge");
  }
  if (!verb.accumulator.empty()) parse_accumulator(verb.accumulator);
  options.accumulator = verb.accumulator;
  options.intermediate = parse_dtype_option("--intermediate", verb.intermediate);
  options.prove = verb.prove;
  if (!verb.actual.empty()) options.actual = verb.actual;
  options.dtype_hint = parse_dtype_option("--dtype-hint", verb.dtype_hint);
  options.only = verb.only;
  options.repeat = verdict_options(verb);
  options.threads = thread_count(verb.threads);
  options.error_maps = error_maps(verb.output);
  std::vector<std::filesystem::path> cases;
  for (const std::string& path : verb.cases) {
    const auto found = find_cases(path);
    cases.insert(cases.end(), found.begin(), found.end());
  }
  Report report;
  {
    Progress progress("checking", Progress::Unit::items);
    options.progress = [&](std::size_t done, std::size_t total, const std::string& name) {
      progress.show(done, total, name);
    };
    report = check(cases, options);
  }
  return write_report(std::move(report), verb.output);
}

}  // namespace assay
