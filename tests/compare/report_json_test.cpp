#include "assay/compare/report/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "report_samples.h"

namespace assay::report_json_test {
namespace {

using nlohmann::json;

TEST(JsonReport, HasTheCountsAndTheFindings) {
  const json j = json::parse(to_json(sample()));
  EXPECT_EQ(j["schema"], "report/2");
  EXPECT_EQ(j["verb"], "diff");
  EXPECT_EQ(j["exit_status"], 2);
  EXPECT_EQ(j["counts"]["passed"], 1);
  EXPECT_EQ(j["counts"]["failed"], 2);
  EXPECT_EQ(j["counts"]["compared"], 3);
  EXPECT_EQ(j["counts"]["not_compared"], 4);
  EXPECT_EQ(j["counts"]["ignored"], 1);
  EXPECT_EQ(j["policies"][1]["name"], "torch");
  EXPECT_EQ(j["policies"][1]["table_sha256"].get<std::string>().size(), 64u);
  EXPECT_EQ(j["actual_format"], "memory");
  EXPECT_EQ(j["first_failure"], "bad, \"really\"");
  ASSERT_EQ(j["findings"].size(), 8u);
  const json& bad = j["findings"][1];
  EXPECT_EQ(bad["verdict"], "failed");
  EXPECT_EQ(bad["shape"], json({3}));
  EXPECT_EQ(bad["worst_index"], json({2}));
  EXPECT_EQ(bad["actual_value"], 3.5);
  EXPECT_EQ(bad["reference_value"], 3.0);
  EXPECT_EQ(bad["metrics"]["max_abs"], 0.5);
  EXPECT_EQ(bad["metrics"]["ulp_histogram_log2"]["0"], 2);
  EXPECT_EQ(bad["other_policies"][0]["policy"], "torch");
  const json& special = j["findings"][2];
  EXPECT_EQ(special["actual_value"], "nan");
  EXPECT_EQ(special["error_over_allowed"], "inf");
  EXPECT_EQ(special["required_tolerance"], "nan");
  EXPECT_EQ(special["worst_index"], json::array({0}));
  EXPECT_FALSE(j["findings"][3].contains("metrics"));
}

TEST(JsonReport, LinesAreItsParts) {
  const Report report = sample();
  const auto lines = lines_of(to_jsonl(report));
  ASSERT_EQ(lines.size(), report.findings.size() + 2);
  const json whole = json::parse(to_json(report)), head = json::parse(lines.front());
  EXPECT_EQ(head["schema"], "finding/2");
  EXPECT_EQ(head["policies"], whole["policies"]);
  for (std::size_t i = 0; i < report.findings.size(); ++i)
    EXPECT_EQ(json::parse(lines[i + 1]), whole["findings"][i]);
  EXPECT_EQ(json::parse(lines.back())["counts"], whole["counts"]);
}

TEST(JsonReport, OfNothingIsJson) {
  EXPECT_TRUE(json::parse(to_json({}))["findings"].empty());
  EXPECT_EQ(lines_of(to_jsonl({})).size(), 2u);
}

TEST(JsonReport, KeepsNamesAndPrintsNoControlCharacters) {
  const std::string text = to_json(hostile_report());
  EXPECT_FALSE(has_control_characters(text, "\n"));
  EXPECT_FALSE(has_misleading_marks(text));
  const json j = json::parse(text);
  for (std::size_t i = 0; i < std::size(hostile); ++i) {
    if (hostile[i].starts_with("bad utf8")) continue;  // JSON has no way to say these bytes
    EXPECT_EQ(j["findings"][i]["name"], hostile[i]);
  }
}

}  // namespace
}  // namespace assay::report_json_test
