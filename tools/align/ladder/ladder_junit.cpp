#include <fmt/format.h>

#include <algorithm>

#include "assay/align/ladder/ladder_lines.h"
#include "assay/align/ladder/ladder_report.h"
#include "assay/compare/report/html/html.h"
#include "assay/compare/report/report.h"
#include "assay/compare/result/printable.h"
#include "assay/compare/result/version.h"

namespace assay::align {
namespace {

using State = RungResult::State;

struct Counts {
  int tests = 0, failures = 0, errors = 0, skipped = 0;
  std::string text(double seconds) const {
    return fmt::format("tests=\"{}\" failures=\"{}\" errors=\"{}\" skipped=\"{}\" time=\"{:.3f}\"", tests,
                       failures, errors, skipped, seconds);
  }
  void operator+=(const Counts& c) {
    tests += c.tests;
    failures += c.failures;
    errors += c.errors;
    skipped += c.skipped;
  }
};

// GitLab shows the text of a failure only, others the message: the text repeats it.
std::string wrong(std::string_view tag, std::string_view type, const std::string& message,
                  const std::string& text) {
  return fmt::format("      <{0} type=\"{1}\" message=\"{2}\">{3}</{0}>\n", tag, type, html_text(message),
                     text);
}

std::string with_lines(const std::string& text) {
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    out += html_text(text.substr(at, end - at)) + "\n";
    at = end + 1;
  }
  return out;
}

// Each key of the files that differs is a case of its own.
std::string files_suite(const std::vector<ConfigurationCheck>& files, Counts& all) {
  if (files.empty()) return "";
  Counts counts;
  std::string cases;
  for (const ConfigurationCheck& c : files) {
    ++counts.tests;
    counts.failures += c.passed ? 0 : 1;
    const std::string found = fmt::format("{}: {}", c.what, c.found);
    cases +=
        fmt::format("    <testcase classname=\"align.configuration files\" name=\"{}\"", html_text(c.what));
    cases += c.passed
                 ? "/>\n"
                 : ">\n" + wrong("failure", "configuration", found, with_lines(found)) + "    </testcase>\n";
  }
  all += counts;
  return fmt::format("  <testsuite name=\"configuration files\" {}>\n{}  </testsuite>\n", counts.text(0),
                     cases);
}

// One stage: a test suite whose cases keep their names from run to run, whatever comes of them.
class Suite {
 public:
  Suite(const LadderResult& result, const RungResult& r, const LadderHead& head)
      : result_(result), r_(r), head_(head) {}

  std::string run(Counts& all) {
    for (std::size_t k = 0; k < r_.phases.size(); ++k) add_phase(k);
    if (r_.rung.kind == Rung::Kind::single && !r_.configuration.empty()) add_configuration();
    all += counts_;
    return fmt::format("  <testsuite name=\"{}\" {}>\n{}{}  </testsuite>\n", html_text(r_.rung.name),
                       counts_.text(r_.seconds), properties(), cases_);
  }

 private:
  std::string properties() const {
    std::string out;
    for (const auto& [key, value] : {std::pair<std::string_view, std::string>{"command", head_.command},
                                     {"subject", head_.subject},
                                     {"reference", head_.reference},
                                     {"ranks", std::to_string(r_.rung.parallel.ranks())},
                                     {"parallel", to_string(r_.rung.parallel)},
                                     {"rule", r_.rule}}) {
      if (!value.empty())
        out += fmt::format("      <property name=\"{}\" value=\"{}\"/>\n", key, html_text(value));
    }
    return "    <properties>\n" + out + "    </properties>\n";
  }

  void add(std::string_view title, const std::string& content) {
    ++counts_.tests;
    cases_ +=
        fmt::format("    <testcase classname=\"align.{}\" name=\"{}\" time=\"0\"{}", html_text(r_.rung.name),
                    title, content.empty() ? "/>\n" : ">\n" + content + "    </testcase>\n");
  }
  void skip(std::string_view title, const std::string& why) {
    ++counts_.skipped;
    add(title, fmt::format("      <skipped message=\"{}\"/>\n", html_text(why)));
  }

  void add_phase(std::size_t k) {
    const std::string_view title = phase_names[k];
    const PhaseResult& p = r_.phases[k];
    if (r_.state == State::held || r_.state == State::left_out)
      return skip(title, fmt::format("{}: {}", name(r_.state), r_.reason));
    if (r_.state == State::trouble) {
      if (k > 0) return skip(title, "the run gave nothing to judge");
      ++counts_.errors;
      return add(title, wrong("error", "trouble", r_.reason, html_text(r_.reason)));
    }
    if (r_.from_cache)
      return add(title, "      <system-out>passed before, with the same content</system-out>\n");
    if (p.compared + p.not_compared == 0)
      return r_.state == State::failed ? skip(title, "not judged: an earlier step fails")
                                       : skip(title, "nothing of it was recorded");
    if (mark(p) == 'P') return add(title, "");
    ++counts_.failures;
    add(title, wrong("failure",
                     mark(p) == 'F'   ? "failed"
                     : mark(p) == 'W' ? "inherited"
                                      : "not compared",
                     message(k), details(k)));
  }

  const Divergence* divergence() const {
    for (std::size_t i = 0; i < result_.failing.size(); ++i) {
      if (&result_.rungs[result_.failing[i]] == &r_) return &result_.divergences[i];
    }
    return nullptr;
  }

  std::string message(std::size_t k) const {
    const PhaseResult& p = r_.phases[k];
    const Divergence* d = divergence();
    if (d != nullptr && d->phase == phase_names[k]) return fmt::format("{}: {}", d->tensor, d->cause);
    return fmt::format("{} failed, {} follow from others, {} not compared", grouped(p.failed),
                       grouped(p.inherited), grouped(p.not_compared));
  }

  std::string details(std::size_t k) const {
    const Divergence* d = divergence();
    if (d != nullptr) return with_lines(message(k) + "\n" + text_of(*d, r_));
    return with_lines(fmt::format("{}\n{}\n", message(k), r_.page.string()));
  }

  void add_configuration() {
    std::string text, first;
    for (const ConfigurationCheck& c : r_.configuration) {
      if (c.passed) continue;
      if (first.empty()) first = fmt::format("{}: {}", c.what, c.found);
      text += html_text(fmt::format("{}: {}", c.what, c.found)) + "\n";
    }
    if (first.empty()) return add("configuration", "");
    ++counts_.failures;
    add("configuration", wrong("failure", "configuration", first, text));
  }

  const LadderResult& result_;
  const RungResult& r_;
  const LadderHead& head_;
  Counts counts_;
  std::string cases_;
};

}  // namespace

std::string to_junit(const LadderResult& result, const LadderHead& head) {
  Counts all;
  std::string suites;
  suites += files_suite(result.files, all);
  for (const RungResult& r : result.rungs) suites += Suite(result, r, head).run(all);
  return fmt::format(
      "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites name=\"assay {} align: {} to {}, {}\" {}>\n"
      "{}</testsuites>\n",
      version, html_text(head.model), head.target.empty() ? "a single device" : html_text(head.target),
      html_text(head.precision), all.text(result.seconds), suites);
}

}  // namespace assay::align
