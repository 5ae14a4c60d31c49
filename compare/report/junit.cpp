#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "assay/compare/report/exemption_uses.h"
#include "assay/compare/report/report.h"
#include "assay/compare/result/printable.h"
#include "assay/compare/result/version.h"

namespace assay {
namespace {

// Jenkins loads the whole file, GitLab takes 30 MB: with these limits it stays below 12 MB.
constexpr std::size_t most_failures = 50;             // listed in one test case
constexpr std::size_t most_case_bytes = 7'500'000;    // of names, tags and the shortest failures
constexpr std::size_t most_detail_bytes = 4'000'000;  // of messages and lists

// GitLab keeps only the first of equal names, so one test case is one step, phase and module.
struct TestCase {
  std::string module, title;
  std::vector<const Finding*> open;
  std::int64_t passed = 0, ignored = 0;
  bool trouble = false;
};

std::string title_of(const Identity& id, const std::string& module) {
  if (id.phase != Phase::none) return fmt::format("step {} {}", id.step, name(id.phase));
  return id.step == 0 ? module : fmt::format("step {}", id.step);
}

// Of what is no module of the report's.
std::string own_module(const Report& report) {
  return "assay " + report.verb;
}

// The first components of a module path: all of them, or so many.
std::string_view top_of(std::string_view module, std::size_t components) {
  std::size_t end = 0;
  while (components-- > 0 && end < module.size()) end = std::min(module.find('.', end + 1), module.size());
  return module.substr(0, end);
}

std::vector<TestCase> test_cases(const Report& report, std::size_t components) {
  std::vector<TestCase> cases;
  std::map<std::tuple<std::int64_t, Phase, std::string_view>, std::size_t> index;
  std::set<std::pair<std::string, std::string>> names;  // as they are printed
  for (const Finding& f : report.findings) {
    const std::string_view module = top_of(f.id.module, components);
    const auto [at, is_new] = index.try_emplace({f.id.step, f.id.phase, module}, cases.size());
    if (is_new) {
      TestCase c{printable(module), title_of(f.id, printable(module)), {}, 0, 0, false};
      const std::string title = c.title;
      for (int twin = 2; !names.emplace(c.module, c.title).second; ++twin)
        c.title = fmt::format("{} ({})", title, twin);
      cases.push_back(std::move(c));
    }
    TestCase& c = cases[at->second];
    if (f.verdict == Verdict::passed || f.verdict == Verdict::exempt)
      ++c.passed;
    else if (f.verdict == Verdict::ignored)
      ++c.ignored;
    else
      c.open.push_back(&f);
    c.trouble = c.trouble || f.verdict == Verdict::unreadable;
  }
  return cases;
}

// At most, without a failure's message and list.
std::size_t bytes_of(const TestCase& c) {
  constexpr std::size_t tags = 60, shortest_failure = 250;
  return html_text(c.module).size() + html_text(c.title).size() + tags +
         (c.open.empty() ? 0 : shortest_failure);
}

bool fits(const std::vector<TestCase>& cases) {
  std::size_t bytes = 0;
  for (const TestCase& c : cases) bytes += bytes_of(c);
  return bytes <= most_case_bytes;
}

// One for all of them.
TestCase together(std::string module, std::string title, const std::vector<TestCase>& cases) {
  TestCase all{std::move(module), std::move(title), {}, 0, 0, false};
  for (const TestCase& c : cases) {
    all.open.insert(all.open.end(), c.open.begin(), c.open.end());
    all.passed += c.passed;
    all.ignored += c.ignored;
    all.trouble = all.trouble || c.trouble;
  }
  return all;
}

// Those that did not pass, as long as there is room for them, and what is left.
std::vector<TestCase> shortened(const std::vector<TestCase>& cases, const std::string& module) {
  std::vector<TestCase> kept, open, passed;
  std::size_t room = most_case_bytes;
  for (const TestCase& c : cases) {
    const bool is_kept = !c.open.empty() && bytes_of(c) <= room;
    if (is_kept) room -= bytes_of(c);
    (is_kept ? kept : c.open.empty() ? passed : open).push_back(c);
  }
  if (!open.empty())
    kept.push_back(together(module, fmt::format("{} more modules did not pass", open.size()), open));
  if (!passed.empty())
    kept.push_back(together(module, fmt::format("{} more modules without a failure", passed.size()), passed));
  return kept;
}

// Where every tensor is a module of its own, the modules above them.
std::vector<TestCase> test_cases(const Report& report) {
  std::size_t components = 1;
  for (const Finding& f : report.findings)
    components = std::max(components, static_cast<std::size_t>(std::ranges::count(f.id.module, '.')) + 1);
  std::vector<TestCase> cases = test_cases(report, components);
  while (!fits(cases) && components > 1) cases = test_cases(report, --components);
  return fits(cases) ? cases : shortened(cases, own_module(report));
}

std::string listing(const TestCase& c) {
  std::string text;
  for (std::size_t i = 0; i < c.open.size() && i < most_failures; ++i) {
    const Finding& f = *c.open[i];
    text += html_text(fmt::format("{}: {}: {} [{}]", name(f.verdict), f.name, f.reason, f.rule)) + "\n";
    for (const Diagnosis& d : f.diagnoses) text += "  because " + html_text(sentence(d)) + "\n";
    for (const std::string& note : f.notes) text += "  " + html_text(note) + "\n";
    if (!f.repeat.empty()) text += "  repeat: " + html_text(f.repeat) + "\n";
  }
  if (c.open.size() > most_failures) text += fmt::format("and {} more\n", c.open.size() - most_failures);
  return text;
}

// GitLab shows the text only, others the message: the text repeats it.
std::string failure(const TestCase& c, std::size_t& room) {
  const Finding& first = *c.open.front();
  const std::string_view tag = c.trouble ? "error" : "failure";
  std::string message = html_text(fmt::format("{}: {}", first.name, first.reason));
  std::string text = listing(c);
  if (message.size() + text.size() > room) {
    message = fmt::format("{} tensors did not pass", c.open.size());
    text = message + ": too many to list here, --json and --html do";
  } else {
    room -= message.size() + text.size();
  }
  return fmt::format("      <{} type=\"{}\" message=\"{}\">{}</{}>\n", tag, name(first.verdict), message,
                     text, tag);
}

std::string properties(const Report& r) {
  std::string out = "    <properties>\n";
  const auto add = [&](std::string_view key, std::string_view value) {
    if (!value.empty())
      out += fmt::format("      <property name=\"{}\" value=\"{}\"/>\n", html_text(key), html_text(value));
  };
  add("assay", version);
  add("command", r.command);
  add("actual", r.actual);
  add("actual format", r.actual_format);
  add("reference", r.reference);
  add("reference format", r.reference_format);
  for (const PolicyUsed& p : r.policies)
    add("policy " + p.name, p.table_sha256.empty() ? "no table" : "table SHA-256 " + p.table_sha256);
  if (r.coverage) add("coverage", sentence(*r.coverage));
  for (const ExemptionUse& use : exemption_uses(r)) add("exempt", use.text());
  return out + "    </properties>\n";
}

}  // namespace

std::string to_junit(const Report& report) {
  std::int64_t tests = 0, failures = 0, errors = 0, skipped = 0;
  std::string out;
  const auto add = [&](std::string_view module, std::string_view title, const std::string& content) {
    ++tests;
    out += fmt::format("    <testcase classname=\"{}\" name=\"{}\" time=\"0\"", html_text(module),
                       html_text(title));
    out += content.empty() ? "/>\n" : ">\n" + content + "    </testcase>\n";
  };
  std::size_t room = most_detail_bytes;
  for (const TestCase& c : test_cases(report)) {
    const bool is_skipped = c.open.empty() && c.passed == 0;
    errors += c.trouble ? 1 : 0;
    failures += !c.trouble && !c.open.empty() ? 1 : 0;
    skipped += is_skipped ? 1 : 0;
    add(c.module, c.title,
        !c.open.empty() ? failure(c, room)
        : is_skipped    ? "      <skipped message=\"ignored by rule\"/>\n"
                        : "");
  }
  if (report.compared_nothing()) {  // without this, a run that compared nothing looks like one that passed
    ++errors;
    add(own_module(report), "something was compared",
        "      <error type=\"trouble\" message=\"nothing was compared\">nothing was compared</error>\n");
  }
  const std::string counts =
      fmt::format("tests=\"{}\" failures=\"{}\" errors=\"{}\" skipped=\"{}\" time=\"{:.3f}\"", tests,
                  failures, errors, skipped, report.seconds);
  return fmt::format(
      "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites {}>\n  <testsuite name=\"assay {}: {} against "
      "{}\" {}>\n{}{}"
      "    <system-out>{}</system-out>\n  </testsuite>\n</testsuites>\n",
      counts, report.verb, html_text(report.actual), html_text(report.reference), counts, properties(report),
      out, html_text(report.summary()));
}

}  // namespace assay
