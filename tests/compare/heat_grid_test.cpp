#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "assay/compare/report/html/heat_grid.h"

namespace assay::heat_grid_test {
namespace {

std::optional<HeatGrid> kinds_of(const std::vector<std::string>& modules) {
  Report report;
  for (const std::string& module : modules) {
    report.findings.emplace_back().id.module = module;
    report.findings.back().id.slot = "output";
  }
  return layer_by_kind(report);
}

TEST(HeatGrid, LayersAreRowsAndPathsWithoutNumbersColumns) {
  const auto grid = kinds_of({"embedding", "model.layers.0.attn.q", "model.layers.2.attn.q",
                              "model.layers.2.moe.experts.5.fc1", "head"});
  ASSERT_TRUE(grid);
  EXPECT_EQ(grid->rows, (std::vector<std::string>{"none", "0", "1", "2"}));
  EXPECT_EQ(grid->columns, (std::vector<std::string>{"embedding output", "attn.q output",
                                                     "moe.experts.fc1 output", "head output"}));
  EXPECT_EQ(grid->row, (std::vector<int>{0, 1, 3, 3, 0}));
  EXPECT_EQ(grid->column, (std::vector<int>{0, 1, 1, 2, 3}));
}

TEST(HeatGrid, ExpertsAreColumns) {
  Report report;
  for (const char* module : {"layers.3.moe.experts.0.fc1", "layers.4.moe.experts.2.fc1", "layers.4.mlp"})
    report.findings.emplace_back().id.module = module;
  const auto grid = layer_by_expert(report);
  ASSERT_TRUE(grid);
  EXPECT_EQ(grid->rows, (std::vector<std::string>{"3", "4"}));
  EXPECT_EQ(grid->columns, (std::vector<std::string>{"0", "1", "2"}));
  EXPECT_EQ(grid->row, (std::vector<int>{0, 1, -1}));
  EXPECT_EQ(grid->column, (std::vector<int>{0, 2, -1}));
}

TEST(HeatGrid, ManyLayersAndKindsBecomeFew) {
  std::vector<std::string> modules;
  for (int i = 0; i < 1000; ++i)
    modules.push_back("layers." + std::to_string(i) + ".kind" + std::to_string(i) + ".fc");
  const auto grid = kinds_of(modules);
  ASSERT_TRUE(grid);
  EXPECT_LE(grid->rows.size(), 96u);
  EXPECT_EQ(grid->rows[1], "11-21");
  EXPECT_EQ(grid->columns, (std::vector<std::string>{"fc"}));
  for (std::size_t i = 0; i < modules.size(); ++i)
    EXPECT_LT(grid->row[i], static_cast<int>(grid->rows.size()));
}

TEST(HeatGrid, NumbersThatAreNoLayersDoNotMatter) {
  const auto grid = kinds_of({"layers.999999999999.x", "layers..x", "a/1/b", "99999999.c", "1", ""});
  ASSERT_TRUE(grid);
  EXPECT_EQ(grid->rows, (std::vector<std::string>{"none", "1"}));
}

}  // namespace
}  // namespace assay::heat_grid_test
