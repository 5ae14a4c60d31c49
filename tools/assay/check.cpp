#include "assay/compare/check.h"

#include <fmt/format.h>

#include "assay/compare/case.h"
#include "output.h"
#include "terminal.h"
#include "verbs.h"

namespace assay {

int run(const CheckVerb& verb) {
  CheckOptions options;
  options.policies = load_policies(verb.tolerances);
  options.level = parse_level(verb.level);
  if (!verb.actual.empty()) options.actual = verb.actual;
  options.only = verb.only;
  options.threads = thread_count(verb.threads);
  std::vector<std::filesystem::path> cases;
  for (const std::string& path : verb.cases) {
    const auto found = find_cases(path);
    cases.insert(cases.end(), found.begin(), found.end());
  }
  Report report;
  {
    Progress progress("checking");
    options.progress = [&](std::size_t done, std::size_t total, const std::string& name) {
      progress.show(done, total, name);
    };
    report = check(cases, options);
  }
  return write_report(report, verb.output);
}

}  // namespace assay
