#include "assay/compare/pairs/dump_remarks.h"

#include <fmt/format.h>

#include <string>
#include <utility>

namespace assay {

void describe_dumps(Report& report, const Dump& actual, const Dump& reference) {
  report.actual = actual.path.string();
  report.reference = reference.path.string();
  report.actual_format = actual.format;
  report.reference_format = reference.format;
  for (const Dump* dump : {&actual, &reference}) {
    const std::string path = dump->path.string();
    for (const std::string& note : dump->notes)
      report.notes.push_back(note.starts_with(path) ? note : path + ": " + note);
  }
}

void add_left_out(std::vector<Finding>& findings, const Dump& dump, std::string_view side,
                  const Rules& rules) {
  const auto add = [&](const std::string& what, Verdict verdict, const std::string& reason) {
    Finding f;
    f.name = fmt::format("{}: {}", side, what);
    f.id.module = f.name;
    const auto ignored = rules.ignored({f.name, what});
    f.verdict = ignored ? Verdict::ignored : verdict;
    f.reason = ignored ? *ignored : reason;
    findings.push_back(std::move(f));
  };
  for (const std::string& what : dump.left_out)
    add(what, Verdict::not_comparable,
        "it cannot be read as a tensor; an [[ignore]] rule leaves it out with a reason");
  for (const std::string& what : dump.unreadable) add(what, Verdict::unreadable, what);
}

}  // namespace assay
