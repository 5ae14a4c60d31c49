#include "assay/compare/check.h"

#include <fmt/format.h>

#include <utility>

#include "assay/compare/calls/case.h"
#include "assay/compare/calls/stated_accumulator.h"
#include "assay/compare/result/printable.h"
#include "assay/golden/error.h"
#include "log.h"
#include "output.h"
#include "shared_options.h"
#include "terminal.h"
#include "verb.h"

namespace assay {
namespace {

struct CheckVerb {
  std::vector<std::string> cases;
  std::string actual, only, dtype_hint;
  std::vector<std::string> tolerances = {"derived"};
  std::string level = "fp64";
  std::string accumulator, intermediate;
  bool whole = false, prove = false;
  int threads = 0;  ///< 0: one per core
  OutputOptions output;
};

void declare(CheckVerb& verb, Options& options) {
  add_cases(options, verb.cases);
  // check() names the folders in the command of a finding.
  options.option("--actual", verb.actual, "judge the outputs found here, in any readable format")
      .holds("DIR")
      .not_repeated();
  add_tolerances(options, verb.tolerances,
                 "derived (default), another policy or a .toml file; the first decides");
  options.option("--level", verb.level, "of the golden values: report (float32), fp64 or certified");
  add_device(options, verb.accumulator, verb.intermediate);
  options.flag("--whole", verb.whole, "also fail a factor within each bound where results are kept narrow");
  options.flag("--prove", verb.prove, "show that the gate can fail: injected faults must be rejected");
  add_dtype_hint(options, verb.dtype_hint, "--actual arrays whose file cannot say it");
  add_only(options, verb.only, "outputs");
  add_threads(options, verb.threads);
  add_output(options, verb.output);
}

int run(const CheckVerb& verb, const Options& given) {
  check_outputs(verb.output, verb.cases);
  CheckOptions options;
  options.policies = load_policies(verb.tolerances);
  options.level = parse_level(verb.level);
  if (options.level == Level::bound) {
    throw Error("--level bound: is of errors; expected report, fp64 or certified, whose values can judge");
  }
  options.accumulator = stated_accumulator(verb.accumulator);
  options.intermediate = parse_dtype_option("--intermediate", verb.intermediate);
  options.whole = verb.whole;
  options.prove = verb.prove;
  if (!verb.actual.empty()) options.actual = verb.actual;
  options.dtype_hint = parse_dtype_option("--dtype-hint", verb.dtype_hint);
  options.only = verb.only;
  options.repeat = given.repeated_options();
  options.threads = thread_count(verb.threads);
  options.log = program_log();
  options.error_maps = error_maps(verb.output);
  Report report;
  {
    Progress progress("checking", Progress::Unit::items);
    options.progress = [&](std::size_t done, std::size_t total, const std::string& name) {
      progress.show(done, total, name);
    };
    report = check(find_all_cases(verb.cases), options);
  }
  return write_report(std::move(report), verb.output);
}

}  // namespace

namespace verbs {
extern constexpr Verb check = {"check", "judge the outputs of operator cases against golden values",
                               "assay check cases/rms_norm/rows_6x33 --actual my_kernel_output",
                               declared<CheckVerb>};
}

}  // namespace assay
