#include "assay/compare/result/printable.h"
#include "assay/compare/result/finding.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "report_samples.h"

namespace assay::printable_test {
namespace {

TEST(Printable, EscapesWhatMisleadsAndKeepsTheRest) {
  EXPECT_EQ(printable("plain \xe4\xb8\xad\xe6\x96\x87 \xc3\xa9 \\x1b"),
            "plain \xe4\xb8\xad\xe6\x96\x87 \xc3\xa9 \\x1b");
  EXPECT_EQ(printable("\x1b[31m"), "\\x1b[31m");
  EXPECT_EQ(printable(std::string_view("\0\n\t\x7f", 4)), "\\x00\\x0a\\x09\\x7f");
  EXPECT_EQ(printable("\xff"), "\\xff");
  EXPECT_EQ(printable("\xc3("), "\\xc3(");
  EXPECT_EQ(printable("\xc0\xaf"), "\\xc0\\xaf") << "overlong";
  EXPECT_EQ(printable("\xed\xa0\x80"), "\\xed\\xa0\\x80") << "surrogate";
  EXPECT_EQ(printable("\xf4\x90\x80\x80"), "\\xf4\\x90\\x80\\x80") << "beyond U+10FFFF";
  EXPECT_EQ(printable("\xf0\x9f\x98\x80"), "\xf0\x9f\x98\x80");
  EXPECT_EQ(printable("\xe2\x80\xae"), "\\xe2\\x80\\xae");
  for (const std::string& name : hostile) {
    EXPECT_FALSE(has_control_characters(printable(name), "")) << name;
    EXPECT_FALSE(has_misleading_marks(printable(name))) << name;
  }
}

TEST(Printable, GroupsThousands) {
  EXPECT_EQ(grouped(0), "0");
  EXPECT_EQ(grouped(999), "999");
  EXPECT_EQ(grouped(1000), "1,000");
  EXPECT_EQ(grouped(-123456), "-123,456");
  EXPECT_EQ(grouped(std::numeric_limits<std::int64_t>::min()), "-9,223,372,036,854,775,808");
}

TEST(Printable, ValuesHaveTheFewestDigitsThatReadBack) {
  EXPECT_EQ(format_value(DType::float32, static_cast<double>(0.1f)), "0.1");
  EXPECT_EQ(format_value(DType::float64, 0.1), "0.1");
  EXPECT_EQ(format_value(DType::float64, static_cast<double>(0.1f)), "0.10000000149011612");
  EXPECT_EQ(format_value(DType::bfloat16, 0.10009765625), "0.100097656");
  EXPECT_EQ(format_value(DType::int64, -5), "-5");
  EXPECT_EQ(format_value(DType::float32, nan), "nan");
  EXPECT_EQ(format_value(DType::float32, -infinity), "-inf");
}

TEST(Printable, ShellWordsReadBack) {
  EXPECT_EQ(shell_quoted("plain_1.5/x=y"), "plain_1.5/x=y");
  EXPECT_EQ(shell_quoted(""), "''");
  EXPECT_EQ(shell_quoted("a b"), "'a b'");
  EXPECT_EQ(shell_quoted("it's $x"), "'it'\\''s $x'");
}

TEST(Reports, CommandsToRepeatAreSafeToShow) {
  const Report report = hostile_report();
  for (const Finding& f : report.findings) {
    EXPECT_FALSE(has_control_characters(f.repeat, "")) << f.repeat;
    EXPECT_FALSE(has_misleading_marks(f.repeat)) << f.repeat;
  }
}

}  // namespace
}  // namespace assay::printable_test
