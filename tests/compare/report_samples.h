#pragma once

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <limits>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "assay/compare/diff.h"
#include "memory_dump.h"
#include "not_a_number.h"

/// Reports for the tests of every format.
namespace assay {

/// One of each: passed, failed, NaN, other shape, missing on both sides, ignored, unreadable.
inline Report sample() {
  MemoryDump a("actual"), r("reference");
  const auto add = [&](const char* module, Tensor actual, Tensor reference) {
    a.add(module, std::move(actual));
    r.add(module, std::move(reference));
  };
  add("good", float32({1, 2}), float32({1, 2}));
  add("bad, \"really\"", float32({1, 2, 3.5}), float32({1, 2, 3}));
  add("nan", float32({nan, 2}), float32({1, 2}));
  add("shape", float32({1, 2}), float32({1}));
  add("broken", float32({1}), float32({1}));
  a.damage("broken");
  r.add("gone", float32({1}));
  a.add("new", float32({1}));
  DiffOptions options;
  options.policies = {load_policy("telechat3"), load_policy("torch")};
  options.repeat = "assay diff actual reference";
  Report report = diff(a, r, options);
  report.findings.push_back({});
  report.findings.back().name = report.findings.back().id.module = "skipped";
  report.findings.back().verdict = Verdict::ignored;
  report.findings.back().reason = "rules.toml, [[ignore]] 1: not numeric";
  return report;
}

/// Everything a file name or a tensor name may do to a terminal, a browser, a spreadsheet or a parser.
inline const std::string hostile[] = {
    "=cmd|' /C calc'!A0",
    "+1",
    "-1",
    "@SUM(1)",
    "\tTab",
    "esc\x1b[31mred\x1b[0m",
    "bell\a\b\x7f",
    "two\nlines\r\n| x |",
    "nul" + std::string(1, '\0') + "byte",
    "<script>alert(1)</script>",
    "</testcase>&amp;&#x1b;]]>",
    "\"quoted\", 'comma'",
    "`code` **bold** [link](http://x) ~~gone~~ # !",
    "<!-- | --> $x^2$ @team",
    "bidi\xe2\x80\xae\xe2\x81\xa6hidden\xe2\x80\x8b",
    "alm\xd8\x9c c1\xc2\x9b"
    "31m shy\xc2\xad",
    "bad utf8 \xff\xfe \xc3( \xe2\x82 \xed\xa0\x80 \xf4\x90\x80\x80",
    "noncharacters \xef\xbf\xbe \xef\xbf\xbf tag \xf3\xa0\x81\x81",
    "plain \xe4\xb8\xad\xe6\x96\x87 \xc3\xa9",
    std::string(5000, 'x'),
};

inline Report hostile_report() {
  MemoryDump a("a\x1b[2J<b>"), r("r|\xe2\x80\xae");
  for (const std::string& name : hostile) {
    a.add(name, float32({1, 2}));
    r.add(name, float32({1, 9}));
  }
  a.notes = {"note \x1b[5m <i>\n| |"};
  DiffOptions options;
  Policy named = load_policy("telechat3"), other = named;
  other.name = "policy\x1b[31m";
  options.policies = {named, other};
  options.repeat = "assay diff a r";
  Report report = diff(a, r, options);
  for (Finding& f : report.findings) f.notes.push_back("note of " + f.name);
  return report;
}

inline bool has_control_characters(std::string_view text, std::string_view allowed) {
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if ((byte < 0x20 || byte == 0x7f) && allowed.find(c) == std::string_view::npos) return true;
  }
  return false;
}
inline bool has_misleading_marks(std::string_view text) {
  for (const char* mark : {"\xe2\x80\xae", "\xe2\x81\xa6", "\xe2\x80\x8b", "\xd8\x9c", "\xc2\x9b", "\xc2\xad",
                           "\xef\xbf\xbe", "\xef\xbf\xbf", "\xf3\xa0\x81\x81", "\xff", "\xed\xa0\x80"}) {
    if (text.find(mark) != std::string_view::npos) return true;
  }
  return false;
}

inline std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

inline std::size_t occurrences(std::string_view text, std::string_view of) {
  std::size_t count = 0;
  for (std::size_t at = text.find(of); at != std::string::npos; at = text.find(of, at + 1)) ++count;
  return count;
}

}  // namespace assay
