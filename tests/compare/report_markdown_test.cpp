#include "assay/compare/report/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "report_samples.h"

namespace assay::report_markdown_test {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

TEST(Markdown, HasVerdictCountsAndATable) {
  const std::string text = to_markdown(sample());
  EXPECT_THAT(text, StartsWith("## assay diff: TROUBLE\n"));
  EXPECT_THAT(text,
              HasSubstr("3 compared: 1 passed, 2 failed, 0 inherited; 4 not compared; 1 ignored by rule"));
  EXPECT_THAT(text, HasSubstr("First in execution order: **bad, \"really\"** (failed)"));
  EXPECT_EQ(occurrences(text, "\n| "), 2u + 6u);
  EXPECT_THAT(
      text, HasSubstr("actual actual (memory), reference reference (memory), policy telechat3 (table 6755"));
}

TEST(Markdown, HasAtMostTwentyRows) {
  Report report = sample();
  const Finding failed = report.findings[1];
  report.findings.clear();
  for (char letter = 'a'; letter <= 'z'; ++letter) {
    report.findings.push_back(failed);
    report.findings.back().id.module = report.findings.back().name = std::string("part.") + letter + ".x";
  }
  const std::string text = to_markdown(report);
  EXPECT_EQ(occurrences(text, "\n| "), 2u + 1u);
  EXPECT_THAT(text, HasSubstr("| 26 | failed | 1.25e+03 | part |"));
}

TEST(Markdown, StaysBelowSixtyKilobytes) {
  Report report = hostile_report();
  for (Finding& f : report.findings) {
    f.reason = std::string(5000, '\x1b');
    f.notes.assign(40, f.reason);
  }
  report.actual = report.command = report.findings.front().reason;
  const std::string text = to_markdown(report);
  EXPECT_LE(text.size(), 60'000u);
  EXPECT_THAT(text, HasSubstr("\n- and more that does not fit\n"));
  EXPECT_THAT(text, StartsWith("## assay diff: FAIL\n"));
}

TEST(Markdown, APassHasNoTable) {
  Report report = sample();
  report.findings.resize(1);
  EXPECT_THAT(to_markdown(report), StartsWith("## assay diff: PASS\n"));
  EXPECT_THAT(to_markdown(report), Not(HasSubstr("| --- |")));
}

TEST(Markdown, EscapesMarkup) {
  const std::string text = to_markdown(hostile_report());
  EXPECT_FALSE(has_control_characters(text, "\n"));
  EXPECT_FALSE(has_misleading_marks(text));
  EXPECT_THAT(text, Not(HasSubstr("<script")));
  EXPECT_THAT(text, Not(HasSubstr("<!--")));
  EXPECT_THAT(text, HasSubstr("\\`code\\` \\*\\*bold\\*\\* \\[link\\]\\(http"));
  EXPECT_THAT(text, Not(HasSubstr("@team"))) << "would notify somebody";
  EXPECT_THAT(text, HasSubstr("\\$x^2\\$"));
  for (const std::string& line : lines_of(text)) {
    if (!line.starts_with("| ")) continue;
    std::size_t bars = 0;
    for (std::size_t i = 0; i < line.size(); ++i)
      bars += line[i] == '|' && (i == 0 || line[i - 1] != '\\') ? 1 : 0;
    EXPECT_EQ(bars, 6u) << line;
  }
}

}  // namespace
}  // namespace assay::report_markdown_test
