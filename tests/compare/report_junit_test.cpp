#include "assay/compare/report/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "report_samples.h"

namespace assay::report_junit_test {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

std::vector<std::string> attributes(const std::string& xml, const std::string& name) {
  std::vector<std::string> values;
  const std::string begin = " " + name + "=\"";
  for (std::size_t at = xml.find(begin); at != std::string::npos; at = xml.find(begin, at)) {
    at += begin.size();
    values.push_back(xml.substr(at, xml.find('"', at) - at));
  }
  return values;
}

TEST(Junit, CountsFailuresErrorsAndSkipped) {
  const std::string xml = to_junit(sample());
  EXPECT_THAT(xml, StartsWith("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites "));
  EXPECT_THAT(xml, HasSubstr("tests=\"8\" failures=\"5\" errors=\"1\" skipped=\"1\""));
  EXPECT_EQ(occurrences(xml, "<failure "), 5u);
  EXPECT_EQ(occurrences(xml, "<error "), 1u);
  EXPECT_EQ(occurrences(xml, "<skipped "), 1u);
  EXPECT_THAT(
      xml, HasSubstr("<failure type=\"failed\" message=\"bad, &quot;really&quot;: 1 of 3 elements outside"));
  EXPECT_THAT(xml, HasSubstr("repeat: assay diff actual reference --only &#39;bad, &quot;really&quot;&#39;"));
}

TEST(Junit, WhatAgreesByStatisticsWasCompared) {
  Report report = sample();
  std::erase_if(report.findings, [](const Finding& f) { return f.verdict != Verdict::passed; });
  report.findings.front().verdict = Verdict::statistics_agree;
  EXPECT_FALSE(report.compared_nothing());
  EXPECT_THAT(to_junit(report), Not(HasSubstr("nothing was compared")));
  EXPECT_THAT(to_html(report), Not(HasSubstr("Nothing was compared")));
  report.findings.front().verdict = Verdict::not_comparable;
  EXPECT_TRUE(report.compared_nothing());
  EXPECT_THAT(to_junit(report), HasSubstr("nothing was compared"));
}

TEST(Junit, TestCasesAreStepsPhasesAndModulesAndUnique) {
  Report report;
  report.verb = "diff";
  for (const std::int64_t step : {0, 1}) {
    for (const Phase phase : {Phase::none, Phase::forward, Phase::backward}) {
      for (const char* module : {"a", "b", "step 1", "\x1b", "\\x1b"}) {
        for (const char* slot : {"input", "output"}) {
          Finding f;
          f.id = {step, 0, phase, module, slot, "", 0};
          f.name = to_string(f.id);
          f.verdict = Verdict::passed;
          report.findings.push_back(f);
        }
      }
    }
  }
  const std::string xml = to_junit(report);
  const auto classes = attributes(xml, "classname"), names = attributes(xml, "name");
  ASSERT_EQ(classes.size(), 30u);
  ASSERT_EQ(names.size(), 32u) << "those of the suite and of a property come first";
  std::set<std::string> unique;
  for (std::size_t i = 0; i < classes.size(); ++i) unique.insert(classes[i] + "\n" + names[i + 2]);
  EXPECT_EQ(unique.size(), 30u);
}

TEST(Junit, ListsAtMostFiftyFailuresOfAModule) {
  Report report = sample();
  const Finding failed = report.findings[1];
  report.findings.assign(53, failed);
  const std::string xml = to_junit(report);
  EXPECT_EQ(occurrences(xml, "\nfailed: "), 49u);  // and one behind the tag
  EXPECT_THAT(xml, HasSubstr("and 3 more\n"));
}

TEST(Junit, NothingComparedIsAnError) {
  const std::string xml = to_junit({});
  EXPECT_THAT(xml, HasSubstr("tests=\"1\" failures=\"0\" errors=\"1\" skipped=\"0\""));
  EXPECT_THAT(xml, HasSubstr("<error type=\"trouble\" message=\"nothing was compared\">"));
}

constexpr std::size_t most_bytes = 12'000'000;  // Jenkins loads the whole file, GitLab takes 30 MB

// A failure with everything that a list says of it.
Finding failure(const Identity& id) {
  Finding f = sample().findings[1];
  f.id = id;
  f.name = to_string(id);
  f.repeat = "assay diff actual reference --only '" + f.name + "'";
  f.notes = {std::string(100, 'n')};
  f.diagnoses = {{Cause::permuted, {.how = std::string(100, 'd')}, 0.1}};
  return f;
}

TEST(Junit, AHundredThousandFailuresOfAThousandModulesAreShort) {
  Report report;
  Finding f = failure({0, 0, Phase::forward, "", "output", "y", 0});
  for (int i = 0; i < 100'000; ++i) {
    f.id.module = "model.layers." + std::to_string(i / 100) + ".moe";
    f.name = f.id.module + " tensor " + std::to_string(i % 100);
    report.findings.push_back(f);
  }
  const std::string xml = to_junit(report);
  EXPECT_LT(xml.size(), most_bytes);
  EXPECT_EQ(occurrences(xml, "<testcase "), 1000u);
  EXPECT_EQ(occurrences(xml, "<failure "), 1000u);
  EXPECT_THAT(xml, HasSubstr("and 50 more\n"));
  EXPECT_THAT(xml, HasSubstr("message=\"100 tensors did not pass\""));
}

TEST(Junit, WhereEveryTensorIsAModuleThoseAboveAreTheCases) {
  Report report;
  Finding f = failure({});
  for (int i = 0; i < 100'000; ++i) {
    const std::string module = "model.layers." + std::to_string(i / 1000) + ".mlp.experts." +
                               std::to_string(i / 10 % 100) + ".down_proj.weight_" + std::to_string(i % 10);
    f.id.module = f.name = module;
    report.findings.push_back(f);
  }
  const std::string xml = to_junit(report);
  EXPECT_LT(xml.size(), most_bytes);
  EXPECT_EQ(occurrences(xml, "<testcase "), 10'000u);
  EXPECT_THAT(xml, HasSubstr("classname=\"model.layers.99.mlp.experts.99.down_proj\""));
}

// Names without dots, which nothing folds.
Report flat(int tensors, std::size_t length, int failures) {
  Report report;
  Finding f = failure({});
  for (int i = 0; i < tensors; ++i) {
    const std::string number = std::to_string(i);
    f.id.module = f.name = number + std::string(length - number.size(), '_');
    f.verdict = i < failures ? Verdict::failed : Verdict::passed;
    report.findings.push_back(f);
  }
  return report;
}

TEST(Junit, OfFlatNamesThoseThatPassedAreLeftOutFirst) {
  const std::string xml = to_junit(flat(100'000, 58, 100));
  EXPECT_LT(xml.size(), most_bytes);
  EXPECT_EQ(occurrences(xml, "<testcase "), 101u);
  EXPECT_EQ(occurrences(xml, "<failure "), 100u);
  EXPECT_THAT(xml, HasSubstr("name=\"99900 more modules without a failure\""));
}

TEST(Junit, FailuresOfTooManyLongNamesAreOne) {
  for (const std::size_t length : {58, 800}) {
    const std::string xml = to_junit(flat(30'000, length, 30'000));
    EXPECT_LT(xml.size(), most_bytes);
    const std::size_t cases = occurrences(xml, "<testcase ");
    EXPECT_EQ(occurrences(xml, "<failure "), cases);
    EXPECT_THAT(xml, HasSubstr(std::to_string(30'000 - (cases - 1)) + " more modules did not pass"));
  }
}

TEST(Junit, EscapesMarkup) {
  const std::string xml = to_junit(hostile_report());
  EXPECT_FALSE(has_control_characters(xml, "\n"));
  EXPECT_FALSE(has_misleading_marks(xml));
  EXPECT_THAT(xml, Not(HasSubstr("<script>")));
  EXPECT_THAT(xml, HasSubstr("&lt;script&gt;"));
  EXPECT_THAT(xml, HasSubstr("&lt;/testcase&gt;&amp;amp;&amp;#x1b;]]&gt;"));
  EXPECT_EQ(occurrences(xml, "<testcase "), std::size(hostile));
}

}  // namespace
}  // namespace assay::report_junit_test
