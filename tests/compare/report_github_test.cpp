#include "assay/compare/report/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "report_samples.h"

namespace assay::report_github_test {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

TEST(Github, AnErrorForTheFirstFailureAndANotice) {
  const auto lines = lines_of(to_github_annotations(sample()));
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_THAT(lines[0], StartsWith("::error title=assay diff%3A failed%3A bad%2C \"really\"::1 of 3 elements "
                                   "outside, error/allowed 1.25e+03%0A"));
  EXPECT_THAT(lines[0], HasSubstr("%0Aassay diff actual reference --only"));
  EXPECT_EQ(lines[1],
            "::notice title=assay diff::3 compared: 1 passed, 2 failed, 0 inherited; 4 not compared; "
            "1 ignored by rule");
}

TEST(Github, NothingComparedIsAnError) {
  EXPECT_THAT(to_github_annotations({}), StartsWith("::error title=assay ::nothing was compared\n"));
}

TEST(Github, NoNameBreaksALine) {
  Report report = hostile_report();
  while (!report.findings.empty()) {
    report.findings.front().reason = "100 %\r\n::error::" + report.findings.front().name;
    const std::string text = to_github_annotations(report);
    EXPECT_EQ(lines_of(text).size(), 2u) << text;
    EXPECT_FALSE(has_control_characters(text, "\n")) << text;
    EXPECT_FALSE(has_misleading_marks(text)) << text;
    EXPECT_THAT(text, HasSubstr("100 %25"));
    report.findings.erase(report.findings.begin());
  }
}

}  // namespace
}  // namespace assay::report_github_test
