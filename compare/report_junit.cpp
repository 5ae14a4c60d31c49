#include <fmt/format.h>

#include <map>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "assay/compare/report.h"

namespace assay {
namespace {

constexpr std::size_t most_failures = 50;  // listed in one test case

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : printable(text)) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

// GitLab keeps only the first of equal names, so one test case is one step, phase and module.
struct TestCase {
  std::string module, title;
  std::vector<const Finding*> open;
  std::int64_t passed = 0, ignored = 0;
  bool trouble = false;
};

std::string title_of(const Identity& id) {
  if (id.phase != Phase::none) return fmt::format("step {} {}", id.step, name(id.phase));
  return id.step == 0 ? printable(id.module) : fmt::format("step {}", id.step);
}

std::vector<TestCase> test_cases(const Report& report) {
  std::vector<TestCase> cases;
  std::map<std::tuple<std::int64_t, Phase, std::string>, std::size_t> index;
  std::set<std::pair<std::string, std::string>> names;  // as they are printed
  for (const Finding& f : report.findings) {
    const auto [at, is_new] = index.try_emplace({f.id.step, f.id.phase, f.id.module}, cases.size());
    if (is_new) {
      TestCase c{printable(f.id.module), title_of(f.id), {}, 0, 0, false};
      for (int twin = 2; !names.emplace(c.module, c.title).second; ++twin)
        c.title = fmt::format("{} ({})", title_of(f.id), twin);
      cases.push_back(std::move(c));
    }
    TestCase& c = cases[at->second];
    if (f.verdict == Verdict::passed)
      ++c.passed;
    else if (f.verdict == Verdict::ignored)
      ++c.ignored;
    else
      c.open.push_back(&f);
    c.trouble = c.trouble || f.verdict == Verdict::unreadable;
  }
  return cases;
}

std::string body(const TestCase& c) {
  if (c.open.empty()) {
    return c.passed == 0 && c.ignored > 0 ? "    <skipped message=\"ignored by rule\"/>\n" : "";
  }
  std::string text;
  for (std::size_t i = 0; i < c.open.size() && i < most_failures; ++i) {
    const Finding& f = *c.open[i];
    text += fmt::format("{}: {}: {} [{}]\n", name(f.verdict), f.name, f.reason, f.rule);
    for (const std::string& note : f.notes) text += "  " + note + "\n";
    if (!f.repeat.empty()) text += "  repeat: " + f.repeat + "\n";
  }
  if (c.open.size() > most_failures) text += fmt::format("and {} more\n", c.open.size() - most_failures);
  std::string lines;
  for (std::size_t begin = 0; begin < text.size();) {  // line by line: escaping would eat the line ends
    const std::size_t end = text.find('\n', begin);
    lines += escaped(text.substr(begin, end - begin)) + "\n";
    begin = end + 1;
  }
  const Finding& first = *c.open.front();
  const std::string_view tag = c.trouble ? "error" : "failure";
  return fmt::format("    <{} type=\"{}\" message=\"{}\">{}</{}>\n", tag, name(first.verdict),
                     escaped(fmt::format("{}: {}", first.name, first.reason)), lines, tag);
}

}  // namespace

std::string to_junit(const Report& report) {
  const std::vector<TestCase> cases = test_cases(report);
  std::int64_t failures = 0, errors = 0, skipped = 0;
  std::string out;
  for (const TestCase& c : cases) {
    errors += c.trouble ? 1 : 0;
    failures += !c.trouble && !c.open.empty() ? 1 : 0;
    skipped += c.open.empty() && c.passed == 0 ? 1 : 0;
    const std::string content = body(c);
    out += fmt::format("   <testcase classname=\"{}\" name=\"{}\" time=\"0\"", escaped(c.module),
                       escaped(c.title));
    out += content.empty() ? "/>\n" : ">\n" + content + "   </testcase>\n";
  }
  const std::string counts =
      fmt::format("tests=\"{}\" failures=\"{}\" errors=\"{}\" skipped=\"{}\" time=\"{:.3f}\"", cases.size(),
                  failures, errors, skipped, report.seconds);
  return fmt::format(
      "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites {}>\n  <testsuite name=\"assay {}: {} against "
      "{}\" {}>\n{}"
      "    <system-out>{}</system-out>\n  </testsuite>\n</testsuites>\n",
      counts, report.verb, escaped(report.actual), escaped(report.reference), counts, out,
      escaped(report.summary()));
}

}  // namespace assay
