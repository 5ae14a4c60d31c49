#include "assay/compare/report/report.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "assay/compare/report/text_lines.h"
#include "report_samples.h"

namespace assay::report_text_test {
namespace {

using testing::ElementsAre;
using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

TEST(Text, BeginsWithTheVerdictAndEndsWithTheCounts) {
  const auto lines = lines_of(to_text(sample(), {}));
  EXPECT_EQ(lines[0], "TROUBLE  2 failed, 1 not comparable, 1 missing actual, 1 missing reference, 1");
  EXPECT_EQ(lines[1], "         unreadable: actual against reference");
  EXPECT_EQ(lines.back(), "3 compared: 1 passed, 2 failed, 0 inherited; 4 not compared; 1 ignored by rule");
}

TEST(Text, ShowsTheFirstFailureInFull) {
  const std::string text = to_text(sample(), {});
  EXPECT_THAT(text, HasSubstr("first in execution order: bad, \"really\"\n"));
  EXPECT_THAT(text, HasSubstr("  why       failed: 1 of 3 elements outside"));
  EXPECT_THAT(text, HasSubstr("  worst     [2] of [3]: actual 3.5, reference 3\n"));
  EXPECT_THAT(text, HasSubstr("  error     max abs 0.5, rel L2 0.13; needs tolerance 0.12; float32\n"));
  EXPECT_THAT(text, HasSubstr("  rule      telechat3 float32"));
  EXPECT_THAT(text, HasSubstr("  also      torch: failed, error/allowed"));
  EXPECT_THAT(text, HasSubstr("  repeat    assay diff actual reference --only 'bad, \"really\"'\n"));
  EXPECT_THAT(text, HasSubstr("ignored: 1 tensors by rules.toml, [[ignore]] 1: not numeric"));
}

TEST(Text, FitsItsWidth) {
  for (const int width : {80, 100}) {
    TextStyle style;
    style.width = width;
    for (const std::string& line : lines_of(to_text(sample(), style))) {
      if (line.starts_with("  repeat")) continue;  // to be copied
      EXPECT_LE(line.size(), static_cast<std::size_t>(width)) << line;
    }
  }
}

TEST(Text, APassIsOneLineAndItsRules) {
  MemoryDump a("a");
  a.add("x", float32({1}));
  DiffOptions options;
  options.policies = {load_policy("telechat3")};
  const std::string text = to_text(diff(a, a, options), {});
  EXPECT_THAT(text, StartsWith("PASS  1 tensors of a agree with a\n"));
  EXPECT_THAT(text, Not(HasSubstr("first in execution order")));
  EXPECT_THAT(text, EndsWith("1 compared: 1 passed, 0 failed, 0 inherited; 0 not compared\n"));
}

TEST(Text, NothingComparedIsNoPass) {
  Report report;
  report.verb = "diff";
  EXPECT_THAT(to_text(report, {}), StartsWith("TROUBLE  nothing was compared"));
}

TEST(Text, LayersFoldIntoOneLine) {
  Report report = sample();
  const Finding failed = report.findings[1];
  report.findings.clear();
  for (int layer = 0; layer < 40; ++layer) {
    report.findings.push_back(failed);
    report.findings.back().name = "layers." + std::to_string(layer) + ".norm";
  }
  const std::string text = to_text(report, {});
  EXPECT_THAT(text, HasSubstr("     40  failed                 1.25e+03  layers.0-39.norm\n"));
  EXPECT_LE(lines_of(text).size(), 20u);
  TextStyle all;
  all.all = true;
  EXPECT_THAT(to_text(report, all), HasSubstr("layers.39.norm"));
  EXPECT_THAT(to_text(report, all), Not(HasSubstr("layers.0-39.norm")));
}

TEST(Text, FitsAScreenWhateverHappened) {
  const Report origin = sample();
  Report report;
  report.actual = report.reference = "dump";
  Finding failed = origin.findings[1];
  failed.origin = Origin{Origin::Kind::created, nan, "its inputs passed " + std::string(300, 'x'), ""};
  const std::string sentence = "words that fill a line or two, " + std::string(30, 'y') + " ";
  failed.diagnoses.assign(3, {Cause::permuted, {.how = sentence + sentence + sentence + sentence}, 0.5});
  failed.others.clear();
  failed.notes.assign(5, sentence + sentence + sentence);
  for (int v = 1; v < verdict_count; ++v) {
    for (int i = 0; i < 300; ++i) {
      Finding& f = report.findings.emplace_back(failed);
      f.verdict = static_cast<Verdict>(v);
      if (f.verdict == Verdict::exempt) f.exemption = Exemption{.source = sentence};
      f.name = f.id.module =
          fmt::format("part{}x.m{:03}.{}", v, i, std::string(1, static_cast<char>('a' + i % 26)));
    }
  }
  report.notes.assign(30, sentence);
  const std::string text = to_text(report, {});
  // Each of the eleven kinds of verdict but "passed" has its line; 20 hold the rest of the screen.
  EXPECT_LE(lines_of(text).size(), 20u + verdict_count - 1) << text;
  for (int v = 1; v < verdict_count; ++v)
    EXPECT_THAT(text, HasSubstr(std::string(name(static_cast<Verdict>(v))))) << v;
  EXPECT_THAT(text, HasSubstr("and 29 more notes: --all shows them\n"));
  std::erase_if(report.findings, [](const Finding& f) {
    return f.verdict != Verdict::failed && f.verdict != Verdict::mistrusted &&
           f.verdict != Verdict::missing_actual;
  });
  EXPECT_LE(lines_of(to_text(report, {})).size(), 20u) << to_text(report, {});
}

TEST(Text, WhatFollowsIsOneLine) {
  Report report = sample();
  for (const Verdict verdict : {Verdict::inherited, Verdict::inherited, Verdict::not_comparable}) {
    Finding& f = report.findings.emplace_back(report.findings[1]);
    f.verdict = verdict;
    f.origin = Origin{Origin::Kind::inherited, nan, "", "bad"};
  }
  EXPECT_THAT(to_text(report, {}),
              HasSubstr("      3  inherited                        follow from these, 1 not compared\n"));
}

TEST(Text, TheLastLineNamesTheFiles) {
  TextStyle style;
  style.written = {"a.json", "b\x1b.html"};
  EXPECT_THAT(to_text(sample(), style), EndsWith("; 1 ignored by rule; wrote a.json, b\\x1b.html\n"));
}

TEST(Text, LinesNeverBeginLikeACommand) {
  for (std::size_t room = 8; room < 40; ++room) {
    std::size_t length = 0;
    for (const std::string& line : wrapped("text ::error::x and ::a :: ::b more text :::", room)) {
      EXPECT_FALSE(line.starts_with("::")) << line;
      length += line.size() + 1;
    }
    EXPECT_EQ(length, 45u) << "only spaces become line ends";
  }
}

// GitHub's runner obeys lines that begin so, after any spaces.
TEST(Text, ANameThatPassedIsNoCommand) {
  Report report = sample();
  std::erase_if(report.findings, [](const Finding& f) { return f.verdict != Verdict::passed; });
  report.findings.front().name = "::error::x";
  report.findings.front().ratio = 0.5;
  const std::string text = to_text(report, {});
  EXPECT_THAT(text, HasSubstr("in ::error::x\n"));
  for (const std::string& line : lines_of(text))
    EXPECT_FALSE(line.substr(std::min(line.find_first_not_of(' '), line.size())).starts_with("::")) << line;
}

TEST(Text, WrappingKeepsWordsAndSaysWhatIsLeftOut) {
  EXPECT_THAT(wrapped("one two three", 8), ElementsAre("one two", "three"));
  EXPECT_THAT(wrapped("averylongword two", 8), ElementsAre("averylongword", "two"));
  EXPECT_THAT(wrapped("one two three four", 8, 1), ElementsAre("one .."));
  EXPECT_THAT(wrapped("one two", 8, 1), ElementsAre("one two"));
  EXPECT_THAT(wrapped("", 8), ElementsAre(""));
}

TEST(Text, HasEscapeCodesOnlyInColour) {
  EXPECT_THAT(to_text(sample(), {}), Not(HasSubstr("\x1b")));
  TextStyle style;
  style.color = true;
  EXPECT_THAT(to_text(sample(), style), HasSubstr("\x1b[1;31mTROUBLE\x1b[0m"));
  EXPECT_THAT(to_text(sample(), style), EndsWith("1 ignored by rule\n"));
}

TEST(Text, DisarmsHostileNames) {
  TextStyle all;
  all.all = true;
  const std::string text = to_text(hostile_report(), all);
  EXPECT_FALSE(has_control_characters(text, "\n"));
  EXPECT_FALSE(has_misleading_marks(text));
}

}  // namespace
}  // namespace assay::report_text_test
