// A rerun of a replay adds up in other orders; a second run of a program that is not deterministic has other
// bits.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "assay/align/ladder/check_rung.h"
#include "assay/align/ladder/ladder_report.h"

namespace assay::align::rerun_test {
namespace {

using testing::ContainsRegex;
using testing::HasSubstr;

Rung single_device(const std::string& precision) {
  Rung rung = {.name = "single device", .kind = Rung::Kind::single};
  rung.work.model = ASSAY_TEST_DATA "/models/latent.toml,layers=2";
  rung.work.precision = precision;
  rung.work.steps = 1;
  return rung;
}

std::filesystem::path folder(const std::string& name) {
  // Tests run beside each other.
  const std::string test = testing::UnitTest::GetInstance()->current_test_info()->name();
  const auto path = std::filesystem::path(testing::TempDir()) / "rerun" / test / name;
  std::filesystem::remove_all(path);
  std::filesystem::create_directories(path);
  return path;
}

std::size_t different_bits(const std::string& precision) {
  const Rung rung = single_device(precision);
  const auto replay = replay_provider("");
  const RunResult first = replay->run({rung, folder(precision)}),
                  second = replay->run({rung, folder(precision + " again"), "", 1});
  const auto a = open_dump(first.dump.string()), b = open_dump(second.dump.string());
  DiffOptions options;
  options.policies = {load_policy("bitwise")};
  options.explain = false;
  const Report report = diff(*a, *b, options);
  return report.findings.size() - static_cast<std::size_t>(report.count(Verdict::passed));
}

TEST(Rerun, ARerunOfAReplayAddsUpInAnotherOrder) {
  EXPECT_GT(different_bits("fp32"), 0u);
  EXPECT_EQ(different_bits("exact"), 0u);
}

// Its second run has another seed.
class Unsteady : public Provider {
 public:
  explicit Unsteady(bool is_unsteady) : is_unsteady_(is_unsteady) {}
  RunResult run(const RunOrder& order) override {
    Rung rung = order.rung;
    if (is_unsteady_) rung.work.seed += runs_++;
    return replay_->run({rung, order.folder});
  }
  bool may_vary() const override { return true; }
  std::string content(const Rung&) const override { return ""; }
  std::string text() const override { return "a program"; }

 private:
  const bool is_unsteady_;
  std::int64_t runs_ = 0;
  std::unique_ptr<Provider> replay_ = replay_provider("");
};

ConfigurationCheck determinism_of(bool is_unsteady, bool accepts_other_bits = false) {
  Unsteady subject(is_unsteady);
  const auto reference = replay_provider("");
  RungCheck check({subject, *reference}, {.folder = folder(is_unsteady ? "unsteady" : "steady"),
                                          .policies = {load_policy("telechat3")},
                                          .rules = {},
                                          .accepts_other_bits = accepts_other_bits});
  const RungResult result = check.run(single_device("fp32"));
  EXPECT_EQ(result.state, RungResult::State::passed);
  return result.configuration.empty() ? ConfigurationCheck() : result.configuration.back();
}

TEST(Determinism, ASecondRunIsComparedBitForBit) {
  const ConfigurationCheck steady = determinism_of(false);
  EXPECT_THAT(steady.found, HasSubstr("the same bits in "));
  EXPECT_TRUE(steady.passed);
  const ConfigurationCheck unsteady = determinism_of(true);
  EXPECT_EQ(unsteady.what, "determinism");
  EXPECT_THAT(unsteady.found, ContainsRegex("^other bits in [0-9,]+ of [0-9,]+ tensors on a rerun, first "));
  EXPECT_FALSE(unsteady.passed);
}

TEST(Determinism, OtherBitsAreAFindingOnTheScreenAndInTheExitStatusUnlessTheyAreAccepted) {
  LadderResult result;
  result.rungs.push_back({.rung = single_device("fp32"), .configuration = {determinism_of(true)}});
  EXPECT_EQ(result.exit_status(), 1);
  EXPECT_THAT(ladder_text(result, {}),
              ContainsRegex("determinism: other bits in [0-9,]+ of [0-9,]+ tensors on a rerun"));
  result.rungs.front().configuration = {determinism_of(true, true)};
  EXPECT_EQ(result.exit_status(), 0);
  EXPECT_THAT(ladder_text(result, {}), HasSubstr("determinism: accepted: other bits in "));
}

}  // namespace
}  // namespace assay::align::rerun_test
