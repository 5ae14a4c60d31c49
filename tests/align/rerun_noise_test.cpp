// What reruns with other orders of sums change is noise; what they do not is a finding.
#include "assay/align/ladder/rerun_noise.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "assay/align/ladder/check_rung.h"

namespace assay::align::rerun_noise_test {
namespace {

using testing::Each;
using testing::Field;
using testing::HasSubstr;

Finding failure(const std::string& name, double relative_l2, Verdict verdict = Verdict::failed) {
  Finding f;
  f.name = name;
  f.verdict = verdict;
  f.metrics.emplace();
  f.metrics->relative_l2 = relative_l2;
  return f;
}

Report report_of(std::vector<Finding> findings) {
  Report r;
  r.findings = std::move(findings);
  return r;
}

TEST(RerunNoise, WhatRerunsChangeIsNoFailure) {
  Report r = report_of({failure("a", 1e-6), failure("b", 1e-2)});
  EXPECT_TRUE(has_undecided_roots(r));
  EXPECT_EQ(excuse_noise(r, {{"a", 2e-7}, {"b", 2e-7}}), 1u);
  EXPECT_THAT(roots_of(r), testing::ElementsAre(1u));
  EXPECT_THAT(r.findings[0].origin->reason,
              HasSubstr("relative L2 1e-06; reruns of the reference differ by 2e-07"));
}

TEST(RerunNoise, ADeterministicReferenceExcusesNothing) {
  Report r = report_of({failure("a", 1e-12), failure("b", 1e-12)});
  EXPECT_EQ(excuse_noise(r, {{"a", 0}}), 0u);
  EXPECT_EQ(roots_of(r).size(), 2u);
}

TEST(RerunNoise, WhatOnlyCameAfterNoiseStandsForItself) {
  Report r = report_of({failure("a", 1e-6), failure("b", 1e-2, Verdict::inherited)});
  r.findings[1].origin = Origin{Origin::Kind::inherited, std::nan(""), "runs after a, which fails", "a"};
  EXPECT_EQ(excuse_noise(r, {{"a", 2e-7}, {"b", 2e-7}}), 1u);
  EXPECT_THAT(roots_of(r), testing::ElementsAre(1u));
}

TEST(RerunNoise, WhatAReplayOrADiagnosisSettledStays) {
  Report r = report_of({failure("a", 1e-8), failure("b", 1e-8)});
  r.findings[0].origin = Origin{Origin::Kind::created, 5, "linear on its own inputs", ""};
  r.findings[1].diagnoses.push_back({Cause::factor, {.factor = 1.00000001}, 0.1});
  EXPECT_FALSE(has_undecided_roots(r));
  EXPECT_EQ(excuse_noise(r, {{"a", 1e-6}, {"b", 1e-6}}), 0u);
  EXPECT_EQ(roots_of(r).size(), 2u);
}

Rung single_device(const std::string& precision) {
  Rung rung = {.name = "single device", .kind = Rung::Kind::single};
  rung.work.model = ASSAY_TEST_DATA "/models/latent.toml";
  rung.work.precision = precision;
  rung.work.steps = 1;
  return rung;
}

std::filesystem::path folder(const std::string& name) {
  const auto path = std::filesystem::path(testing::TempDir()) / "rerun_noise" / name;
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

TEST(RerunNoise, ARerunOfAReplayAddsUpInAnotherOrder) {
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

std::string determinism_of(bool is_unsteady) {
  Unsteady subject(is_unsteady);
  const auto reference = replay_provider("");
  RungCheck check({subject, *reference}, {.folder = folder(is_unsteady ? "unsteady" : "steady"),
                                          .policies = {load_policy("telechat3")},
                                          .rules = {}});
  const RungResult result = check.run(single_device("fp32"));
  EXPECT_EQ(result.state, RungResult::State::passed);
  EXPECT_THAT(result.configuration, Each(Field(&ConfigurationCheck::passed, true)));
  return result.configuration.empty() ? "" : result.configuration.back().found;
}

TEST(Determinism, ASecondRunIsComparedBitForBit) {
  EXPECT_THAT(determinism_of(false), HasSubstr("a second run has the same bits in"));
  EXPECT_THAT(determinism_of(true), HasSubstr("a second run has other bits in"));
}

}  // namespace
}  // namespace assay::align::rerun_noise_test
