#include "assay/compare/team.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <barrier>
#include <cmath>
#include <limits>
#include <numeric>
#include <thread>

#include "../dumps/scratch.h"
#include "assay/compare/diff.h"
#include "assay/compare/report/report.h"
#include "memory_dump.h"

namespace assay::team_test {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

TEST(ShareOut, TheLargestGoToWhoHasLeast) {
  EXPECT_THAT(share_out(std::vector<double>{1, 9, 5, 5, 1}, 2), ElementsAre(0, 0, 1, 1, 0));
  EXPECT_THAT(share_out(std::vector<double>{1, 9, 5}, 1), Each(0));
  EXPECT_THAT(share_out(std::vector<double>{}, 3), testing::IsEmpty());
}

TEST(ShareOut, EmptyTensorsAreSharedToo) {
  EXPECT_THAT(share_out(std::vector<double>(4), 2), ElementsAre(0, 1, 0, 1));
}

// Every kind of finding, in tensors of many sizes: what crosses from process to process.
class TeamOfThreads : public testing::Test {
 protected:
  TeamOfThreads() : a_("a"), r_("r") {
    constexpr double nan = std::numeric_limits<double>::quiet_NaN();
    for (int i = 0; i < 24; ++i) {
      std::vector<double> values(static_cast<std::size_t>(1 + 37 * i % 23));
      std::iota(values.begin(), values.end(), 1.0);
      const std::string name = "layers." + std::to_string(i) + ".mlp";
      if (i != 3) r_.add(name, float32(values));
      for (double& v : values) v *= i % 4 == 1 ? 2 : 1;
      if (i == 8) values[0] = nan;
      if (i == 12) values.push_back(0);
      if (i != 5) a_.add(name, float32(values));
    }
    a_.add("layers.0.dropout", float32({1}));
    a_.damage("layers.10.mlp");
    a_.add("statistics", float32({1}));
    Record& recorded = r_.add("statistics", float32({1}));
    recorded.has_bits = false;
    recorded.statistics.emplace().max = 1;
    const Scratch scratch;
    options_.rules = Rules::load(scratch.write("rules.toml", R"(
      [[count]]
      match = 'layers.7.*'
      count = 4096
      [[ignore]]
      match = '*.dropout'
      reason = 'random'
      [[ignore]]
      match = 'nothing'
      reason = 'no match')"));
    options_.policies = {load_policy("telechat3"), load_policy("torch")};
    options_.error_maps = 3;
    options_.repeat = "assay diff a r";
  }

  // The report of process 0 of so many, as all formats write it, without its duration.
  std::string report_of(int processes) {
    std::vector<std::string> said(static_cast<std::size_t>(processes));
    std::barrier all(processes);
    Report report;
    std::vector<std::thread> threads;
    for (int rank = 0; rank < processes; ++rank) {
      threads.emplace_back([&, rank] {
        DiffOptions options = options_;
        options.team = {rank, processes, [&, rank](const std::string& own) {
                          said[static_cast<std::size_t>(rank)] = own;
                          all.arrive_and_wait();
                          return rank == 0 ? said : std::vector<std::string>();
                        }};
        Report own = diff(a_, r_, options);
        if (rank == 0)
          report = std::move(own);
        else
          EXPECT_TRUE(own.findings.empty());
      });
    }
    for (std::thread& t : threads) t.join();
    report.seconds = 0;
    TextStyle style;
    style.all = true;
    return to_json(report) + to_csv(report) + to_html(report) + to_text(report, style);
  }

  MemoryDump a_, r_;
  DiffOptions options_;
};

TEST_F(TeamOfThreads, TheReportIsThatOfOneAlone) {
  const std::string alone = report_of(1);
  for (const char* what : {"failed", "missing actual", "missing reference", "not comparable", "unreadable",
                           "ignored", "statistics agree", "\"allowed\":0.0002", "NaN",
                           "actual = 2 x reference", "4096", "rule without a match"}) {
    EXPECT_THAT(alone, HasSubstr(what));
  }
  for (const int processes : {2, 3, 24, 40}) EXPECT_EQ(report_of(processes), alone) << processes;
}

}  // namespace
}  // namespace assay::team_test
