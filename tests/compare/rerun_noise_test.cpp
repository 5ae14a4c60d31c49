// What reruns with other orders of sums change is noise; what they do not is a finding.
#include "assay/compare/origin/rerun_noise.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

namespace assay::rerun_noise_test {
namespace {

using testing::HasSubstr;

Finding failure(const std::string& name, double relative_l2, Verdict verdict = Verdict::failed) {
  Finding f;
  f.name = name;
  f.verdict = verdict;
  f.metrics.emplace();
  f.metrics->relative_l2 = relative_l2;
  return f;
}

TEST(RerunNoise, WhatRerunsChangeIsNoFailure) {
  std::vector<Finding> f = {failure("a", 1e-6), failure("b", 1e-2)};
  EXPECT_TRUE(has_open_roots(f));
  exempt_noise(f, {{"a", 2e-7}, {"b", 2e-7}});
  EXPECT_EQ(f[0].verdict, Verdict::exempt);
  EXPECT_EQ(f[0].exemption->kind, Exemption::Kind::noise_of_reruns);
  EXPECT_DOUBLE_EQ(f[0].exemption->measured, 1e-6);
  EXPECT_DOUBLE_EQ(f[0].exemption->allowed, 2e-6);
  EXPECT_THAT(f[0].exemption->source,
              HasSubstr("relative L2 1e-06; reruns of the reference differ by 2e-07"));
  EXPECT_EQ(f[1].verdict, Verdict::failed);
}

TEST(RerunNoise, ADeterministicReferenceExemptsNothing) {
  std::vector<Finding> f = {failure("a", 1e-12), failure("b", 1e-12)};
  exempt_noise(f, {{"a", 0}});
  for (const Finding& each : f) EXPECT_EQ(each.verdict, Verdict::failed);
}

TEST(RerunNoise, WhereBitsAreAskedForNoiseIsNoExcuse) {
  std::vector<Finding> f = {failure("a", 1e-8)};
  f[0].asks_for_bits = true;
  EXPECT_FALSE(has_open_roots(f));
  exempt_noise(f, {{"a", 1e-6}});
  EXPECT_EQ(f[0].verdict, Verdict::failed);
}

TEST(RerunNoise, ANaNAnIntegerOrAnErrorAsLargeAsTheTensorIsNoNoise) {
  std::vector<Finding> f = {failure("nan", 1e-6), failure("integers", 1e-6), failure("large", 1.5)};
  f[0].metrics->special_mismatch = 1;
  f[1].actual_dtype = f[1].reference_dtype = DType::int64;
  exempt_noise(f, {{"nan", 1e-6}, {"integers", 1e-6}, {"large", 1}});
  for (const Finding& each : f) EXPECT_EQ(each.verdict, Verdict::failed) << each.name;
}

TEST(RerunNoise, WhatOnlyCameAfterNoiseStandsForItself) {
  std::vector<Finding> f = {failure("a", 1e-6), failure("b", 1e-2, Verdict::inherited)};
  f[1].origin = Origin{Origin::Kind::inherited, std::nan(""), "runs after a, which fails", "a"};
  exempt_noise(f, {{"a", 2e-7}, {"b", 2e-7}});
  EXPECT_EQ(f[0].verdict, Verdict::exempt);
  EXPECT_EQ(f[1].verdict, Verdict::failed);
}

TEST(RerunNoise, WhatAReplayOrADiagnosisSettledStays) {
  std::vector<Finding> f = {failure("a", 1e-8), failure("b", 1e-8)};
  f[0].origin = Origin{Origin::Kind::created, 5, "linear on its own inputs", ""};
  f[1].diagnoses.push_back({Cause::factor, {.factor = 1.00000001}, 0.1});
  EXPECT_FALSE(has_open_roots(f));
  exempt_noise(f, {{"a", 1e-6}, {"b", 1e-6}});
  for (const Finding& each : f) EXPECT_EQ(each.verdict, Verdict::failed);
}

}  // namespace
}  // namespace assay::rerun_noise_test
