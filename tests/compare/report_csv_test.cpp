#include "assay/compare/report/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "report_samples.h"

namespace assay::report_csv_test {
namespace {

using testing::Not;

// RFC 4180, with records that end in CR LF.
std::vector<std::vector<std::string>> parse_csv(const std::string& text) {
  std::vector<std::vector<std::string>> rows = {{""}};
  bool quoted = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (quoted) {
      if (text[i] == '"' && i + 1 < text.size() && text[i + 1] == '"') {
        rows.back().back() += text[++i];
      } else if (text[i] == '"') {
        quoted = false;
      } else {
        rows.back().back() += text[i];
      }
    } else if (text[i] == '"' && rows.back().back().empty()) {
      quoted = true;
    } else if (text[i] == ',') {
      rows.back().emplace_back();
    } else if (text.compare(i, 2, "\r\n") == 0) {
      rows.push_back({""});
      ++i;
    } else {
      rows.back().back() += text[i];
    }
  }
  EXPECT_EQ(rows.back(), std::vector<std::string>{""}) << "ends with a line end";
  rows.pop_back();
  return rows;
}

std::string cell(const std::vector<std::vector<std::string>>& rows, std::size_t row,
                 std::string_view column) {
  for (std::size_t i = 0; i < rows[0].size(); ++i) {
    if (rows[0][i] == column) return rows.at(row).at(i);
  }
  return "no column " + std::string(column);
}

TEST(Csv, HasOneFullRowPerTensor) {
  const auto rows = parse_csv(to_csv(sample()));
  ASSERT_EQ(rows.size(), 9u);
  for (const auto& row : rows) EXPECT_EQ(row.size(), rows[0].size()) << row.front();
  for (const std::string& column : rows[0]) EXPECT_EQ(std::ranges::count(rows[0], column), 1) << column;
  EXPECT_EQ(cell(rows, 2, "name"), "bad, \"really\"");
  EXPECT_EQ(cell(rows, 2, "verdict"), "failed");
  EXPECT_EQ(cell(rows, 2, "shape"), "[3]");
  EXPECT_EQ(cell(rows, 2, "max_abs"), "0.5");
  EXPECT_EQ(cell(rows, 2, "worst_index"), "[2]");
  EXPECT_EQ(cell(rows, 2, "actual_value"), "3.5");
  EXPECT_EQ(cell(rows, 2, "reference_value"), "3");
  EXPECT_EQ(cell(rows, 2, "outside"), "1");
  EXPECT_EQ(cell(rows, 3, "actual_nan"), "1");
  EXPECT_EQ(cell(rows, 2, "repeat"), "assay diff actual reference --only 'bad, \"really\"'");
  EXPECT_EQ(cell(rows, 4, "verdict"), "not comparable");
  EXPECT_EQ(cell(rows, 4, "max_abs"), "");
  EXPECT_EQ(cell(rows, 4, "reason"), "shape [2] against [1]");
  EXPECT_EQ(cell(rows, 8, "reason"), "rules.toml, [[ignore]] 1: not numeric");
}

TEST(Csv, DisarmsFormulas) {
  const std::string text = to_csv(hostile_report());
  EXPECT_FALSE(has_control_characters(text, "\r\n"));
  EXPECT_FALSE(has_misleading_marks(text));
  const auto rows = parse_csv(text);
  ASSERT_EQ(rows.size(), 1 + std::size(hostile));
  for (const auto& row : rows) {
    EXPECT_EQ(row.size(), rows[0].size());
    for (const std::string& text_cell : {row[0], row[5], row[row.size() - 5], row.back()}) {
      EXPECT_THAT(text_cell, Not(testing::MatchesRegex("[=+@-].*"))) << text_cell;
    }
  }
  EXPECT_EQ(rows[1][0], "'=cmd|' /C calc'!A0");
}

}  // namespace
}  // namespace assay::report_csv_test
