// Every strategy in every precision, on models that between them have everything: nothing is wrong.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "assay/align/ladder/ladder_report.h"
#include "assay/align/ladder/walk.h"

namespace assay::align::clean_ladders_test {
namespace {

struct Case {
  std::string model, precision;
};

// One of them with one seed and a third of its rungs; with ASSAY_EVERY_CLEAN all with three.
class CleanLadder : public testing::TestWithParam<Case> {};

TEST_P(CleanLadder, HasNoDivergence) {
  const auto& [model, precision] = GetParam();
  const bool every = std::getenv("ASSAY_EVERY_CLEAN") != nullptr;
  if (!every && !(model == "grouped" && precision == "fp32"))
    GTEST_SKIP() << "one clean ladder is climbed; all of them in slow.clean";
  Work work;
  work.model = fmt::format("{}/models/{}.toml", ASSAY_TEST_DATA, model);
  work.precision = precision;
  work.length = 8;
  work.steps = 1;
  work.sequences = 4;
  constexpr std::size_t one_of = 3;
  std::vector<Rung> rungs;
  std::size_t number = 0;
  for (const char* parallel : {"tp=2", "pp=2", "dp=2,zero=1", "cp=2", "dp=2,ep=2", "tp=2,sp=1",
                               "tp=2,sp=1,ep=2,etp=1", "tp=2,dp=2,etp=2", "tp=2,sp=1,pp=2,dp=2,ep=2"}) {
    if (!every && ++number % one_of != 0) continue;
    rungs.push_back(
        {.name = parallel, .kind = Rung::Kind::stated, .work = work, .parallel = parse_parallel(parallel)});
  }
  const auto subject = replay_provider(""), reference = replay_provider("");
  for (std::int64_t seed = 1; seed <= (every ? 3 : 1); ++seed) {
    for (Rung& rung : rungs) rung.work.seed = seed;
    const CheckOptions options = {.folder = std::filesystem::path(testing::TempDir()) /
                                            fmt::format("clean-{}-{}-{}", model, precision, seed),
                                  .policies = {load_policy("telechat3")},
                                  .rules = {},
                                  .threads = 1,
                                  .keep = false};
    std::filesystem::remove_all(options.folder);
    const LadderResult result =
        walk({rungs}, {*subject, *reference}, options, [](const Rung&, const RungResult*) {});
    EXPECT_EQ(result.exit_status(), 0) << "seed " << seed << "\n" << ladder_text(result, {});
    std::filesystem::remove_all(options.folder);
  }
}

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const char* model : {"latent", "grouped", "everything"}) {
    for (const char* precision : {"fp64", "fp32", "exact", "bf16", "fp16", "fp8"})
      all.push_back({model, precision});
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(Models, CleanLadder, testing::ValuesIn(cases()),
                         [](const auto& info) { return info.param.model + "_" + info.param.precision; });

}  // namespace
}  // namespace assay::align::clean_ladders_test
