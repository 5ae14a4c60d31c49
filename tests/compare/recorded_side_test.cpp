#include "assay/compare/pairs/recorded_side.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>

#include "assay/compare/diff.h"
#include "assay/dumps/io/checksum.h"
#include "memory_dump.h"

namespace assay::recorded_side_test {
namespace {

using testing::HasSubstr;

constexpr double nan = std::numeric_limits<double>::quiet_NaN();

// One tensor of which only this was recorded, against one with values.
Finding judged(const Tensor& actual, const Statistics& statistics, const std::string& checksum = "",
               const std::string& policy = "telechat3") {
  MemoryDump a("a"), r("r");
  a.add("x", actual);
  Record& record = r.add("x", actual);
  record.has_bits = false;
  if (statistics != Statistics{}) record.statistics = statistics;
  record.checksum = checksum;
  DiffOptions options;
  options.policies = {load_policy(policy)};
  return diff(a, r, options).findings.at(0);
}

Statistics extremes(double min, double max) {
  Statistics s;
  s.min = min;
  s.max = max;
  return s;
}

TEST(RecordedSide, AChecksumThatDiffersProvesThatBitsDo) {
  const Tensor x = float32({1, 2});
  const std::string other = "crc32:00000000";
  Finding f = judged(x, {}, other);
  EXPECT_EQ(f.verdict, Verdict::not_comparable);
  EXPECT_EQ(f.reason,
            "crc32 differs: the bits do, by how much cannot be said; only a checksum was recorded on the "
            "reference side");
  EXPECT_EQ(judged(x, {}, other, "bitwise").verdict, Verdict::failed);
  EXPECT_EQ(judged(tensor(DType::int32, {1, 2}), {}, other).verdict, Verdict::failed);
  f = judged(x, extremes(1, 2), other);
  EXPECT_EQ(f.verdict, Verdict::statistics_agree);
  EXPECT_THAT(f.reason, testing::StartsWith("max, min agree; crc32 differs: the bits do"));
  // What MindSpore hashes is widened, and what an unknown recorder hashes is unknown.
  EXPECT_EQ(judged(tensor(DType::bfloat16, {1, 2}), {}, "crc32(float32):2e3fa576").verdict, Verdict::passed);
  EXPECT_EQ(judged(x, {}, "blake2:00").reason,
            "only a checksum was recorded on the reference side: the sides have no number in common");
  EXPECT_EQ(judged(x, {}).reason,
            "no values were recorded on the reference side: the sides have no number in common");
}

TEST(RecordedSide, StatisticsBelowTheirAllowedErrorAreNoEvidence) {
  const Tensor x = float32({1e-6, -2e-6});
  EXPECT_EQ(judged(x, extremes(-2e-6, 1e-6)).verdict, Verdict::statistics_agree);
  const Finding f = judged(x, extremes(-3e-6, 5e-7));
  EXPECT_EQ(f.verdict, Verdict::mistrusted);
  EXPECT_THAT(f.reason, HasSubstr("zeros"));
}

// Each is what no array can have (by the definitions of these numbers); the neighbours are what some array
// has.
TEST(RecordedSide, StatisticsThatContradictEachOtherAreRefused) {
  const Tensor x = float32({1, 2, 3, 4});
  Statistics whole = extremes(1, 4);
  whole.sum = whole.abs_sum = 10;
  whole.nan = whole.inf = 0;
  EXPECT_EQ(judged(x, whole).verdict, Verdict::statistics_agree);
  const auto refused = [&](std::optional<double> Statistics::*which, double value) {
    Statistics s = whole;
    s.*which = value;
    const Finding f = judged(x, s);
    EXPECT_EQ(f.verdict, Verdict::unreadable);
    EXPECT_THAT(f.reason, testing::StartsWith("r: x: no tensor has these statistics: "));
    return f.reason.substr(f.reason.rfind(": ") + 2);
  };
  EXPECT_EQ(refused(&Statistics::min, 5), "min 5 is above max 4");
  EXPECT_EQ(refused(&Statistics::min, 3), "mean 2.5 is below min 3");
  EXPECT_EQ(refused(&Statistics::max, 2), "mean 2.5 is above max 2");
  EXPECT_EQ(refused(&Statistics::sum, 40), "mean 10 is above max 4");
  EXPECT_EQ(refused(&Statistics::abs_sum, 9), "abs sum 9 is below the magnitude 10 of sum");
  EXPECT_EQ(refused(&Statistics::l2, -1), "l2 -1 is negative");
  EXPECT_EQ(refused(&Statistics::max, std::numeric_limits<double>::infinity()),
            "min 1 and max inf with 0 Inf");
  EXPECT_EQ(refused(&Statistics::min, nan), "an extreme is NaN, and no element is");
  whole.nan = 3;
  whole.inf = 2;
  EXPECT_EQ(refused(&Statistics::min, 1), "3 NaN and 2 Inf of 4 elements");
  whole.nan = 0;
  EXPECT_EQ(refused(&Statistics::min, 1), "min 1 and max 4 with 2 Inf");
}

// float16 adds 2048 + 1 as 2048: a recorder's mean of equal elements may lie beside all of them.
TEST(RecordedSide, WhatARecorderRoundsIsNoContradiction) {
  Statistics s = extremes(1, 1);
  s.mean = 0.5;
  EXPECT_NE(judged(tensor(DType::float16, std::vector<double>(4096, 1)), s).verdict, Verdict::unreadable);
  s.mean = 0.9999999;
  EXPECT_NE(judged(float32(std::vector<double>(4096, 1)), s).verdict, Verdict::unreadable);
  s.mean = 0.9;
  EXPECT_EQ(judged(float32(std::vector<double>(4096, 1)), s).verdict, Verdict::unreadable);
}

// Not only what was measured can be the first failure.
TEST(RecordedSide, AFailingStatisticIsAFailure) {
  MemoryDump a("a"), r("r");
  for (MemoryDump* d : {&a, &r}) {
    Record& record = d->add("x", float32({1, 2}));
    record.has_bits = false;
    record.statistics = extremes(1, d == &a ? 2 : 3);
    d->add("y", float32({d == &a ? 1.0 : 2.0}));
  }
  DiffOptions options;
  options.policies = {load_policy("telechat3")};
  const Report report = diff(a, r, options);
  EXPECT_EQ(report.count(Verdict::failed), 2);
  EXPECT_EQ(report.first_failure()->name, "x");
}

TEST(RecordedSide, StatisticsNeedARule) {
  EXPECT_EQ(judged(float32({1}), extremes(1, 1), "", "flash").verdict, Verdict::no_rule);
  // 1.5e-4 is inside only from a count of 2,000 on: nobody knows it.
  const Finding f = judged(float32({1}), extremes(1, 1 + 3e-4));
  EXPECT_EQ(f.verdict, Verdict::no_rule);
  EXPECT_THAT(f.reason, HasSubstr("[[count]]"));
}

TEST(RecordedSide, ShapesAndDtypesAreJudgedFirst) {
  MemoryDump a("a"), r("r");
  a.add("x", float32({1, 2})).has_bits = false;
  r.add("x", float32({1, 2, 3}));
  DiffOptions options;
  options.policies = {load_policy("telechat3")};
  EXPECT_EQ(diff(a, r, options).findings[0].reason, "shape [2] against [3]");
}

// Two ranks that recorded no values, against the whole tensor.
Finding judged(const Placement& placement, const std::array<Statistics, 2>& recorded, const Tensor& whole) {
  MemoryDump a("a"), r("r");
  const Identity id = {0, -1, Phase::none, "x", "", "", 0};
  const bool is_cut = placement.kind == Placement::Kind::shard;
  a.mesh = {{"tp"}, {2}};
  for (int rank = 0; rank < 2; ++rank) {
    Record& record = a.add_copy(id, rank, is_cut ? float32({0, 0}) : float32({0, 0, 0, 0}));
    record.global_shape = {4};
    record.placements = {placement};
    record.has_bits = false;
    record.statistics = recorded[static_cast<std::size_t>(rank)];
  }
  r.add(id, whole);
  DiffOptions options;
  options.policies = {load_policy("telechat3")};
  return diff(a, r, options).findings.at(0);
}

TEST(RecordedSide, CopiesMustAgree) {
  const Finding f = judged(Placement{}, {extremes(1, 2), extremes(1, 3)}, float32({1, 2, 2, 2}));
  EXPECT_EQ(f.verdict, Verdict::replicas_differ);
  EXPECT_EQ(f.reason, "actual: ranks 0 and 1 should hold the same bits; they recorded the max 2 and 3");
  EXPECT_EQ(judged(Placement{}, {extremes(1, 2), extremes(1, 2)}, float32({1, 2, 2, 2})).verdict,
            Verdict::statistics_agree);
}

TEST(RecordedSide, PartsArePutTogether) {
  const Placement shard{Placement::Kind::shard};
  Statistics first = extremes(1, 2), second = extremes(-3, 4);
  first.l2 = std::sqrt(5);
  second.l2 = 5;
  first.mean = second.mean = 100;  // is not looked at
  const Finding f = judged(shard, {first, second}, float32({1, 2, -3, 4}));
  EXPECT_EQ(f.verdict, Verdict::statistics_agree);
  EXPECT_THAT(f.reason, testing::StartsWith("max, min, l2 agree; only statistics were"));
  EXPECT_THAT(
      judged(shard, {first, second}, float32({1, 2, -3.2, 4})).reason,
      testing::StartsWith("min -3 against -3.20000005, allowed 0.00042; l2 5.47722558 against 5.5892"));
  EXPECT_EQ(judged(shard, {first, extremes(nan, nan)}, float32({1, 2, -3, 4})).verdict, Verdict::failed);
}

// [[1, 2], [3, 4]] on two ranks, of which only checksums are there.
void add_columns(MemoryDump& dump, int dim, const std::array<Tensor, 2>& hashed) {
  dump.mesh = {{"tp"}, {2}};
  for (int rank = 0; rank < 2; ++rank) {
    const Tensor& part = hashed[static_cast<std::size_t>(rank)];
    Record& record = dump.add_copy({0, -1, Phase::none, "x", "", "", 0}, rank,
                                   part.reshaped(dim == 0 ? Shape{1, 2} : Shape{2, 1}));
    record.global_shape = {2, 2};
    record.placements = {{Placement::Kind::shard, dim}};
    record.has_bits = false;
    record.checksum = "sha256:" + sha256(part);
  }
}

TEST(RecordedSide, ChecksumsOfPartsAreThoseOfTheWholeCutAlike) {
  const auto judge = [](const MemoryDump& a, const MemoryDump& r) {
    DiffOptions options;
    options.policies = {load_policy("telechat3")};
    return diff(a, r, options).findings.at(0);
  };
  MemoryDump columns("columns"), others("others"), rows("rows"), whole("whole");
  add_columns(columns, 1, {float32({1, 3}), float32({2, 4})});
  add_columns(others, 1, {float32({1, 3}), float32({2, 5})});
  add_columns(rows, 0, {float32({1, 2}), float32({3, 4})});
  whole.add("x", float32({1, 2, 3, 4}).reshaped({2, 2}));
  EXPECT_EQ(judge(columns, columns).rule, "every bit equal, by sha256 of 2 parts");
  EXPECT_EQ(judge(columns, whole).verdict, Verdict::passed);
  EXPECT_EQ(judge(whole, rows).verdict, Verdict::passed);
  EXPECT_EQ(
      judge(others, whole).reason,
      "sha256 of 2 parts differs: the bits do, by how much cannot be said; only checksums of parts were "
      "recorded on the actual side");
  EXPECT_EQ(judge(columns, others).verdict, Verdict::not_comparable);
  EXPECT_EQ(judge(columns, rows).reason,
            "only checksums of parts were recorded on both sides: the sides have no number in common");
}

// The mean of a thousand bfloat16 that was added up in bfloat16 may be anything; in float64 it is known.
TEST(RecordedSide, SumsAreAsGoodAsTheirArithmetic) {
  const Tensor x = Tensor::from_values(DType::bfloat16, {1000}, std::vector<double>(1000, 1));
  Statistics s;
  s.l2 = std::sqrt(1000);
  s.mean = 1.5;
  EXPECT_EQ(judged(x, s).verdict, Verdict::not_comparable);
  s.arithmetic = DType::float64;
  EXPECT_EQ(judged(x, s).verdict, Verdict::failed);
  s.mean = 1;
  EXPECT_EQ(judged(x, s).verdict, Verdict::statistics_agree);
}

TEST(RecordedSide, PartialSumsSayNothing) {
  const Finding f =
      judged(Placement{Placement::Kind::partial}, {extremes(1, 2), extremes(1, 2)}, float32({1, 2, 2, 2}));
  EXPECT_EQ(f.verdict, Verdict::not_comparable);
  EXPECT_THAT(f.reason, testing::StartsWith(
                            "only statistics of parts, which do not add up, were recorded on the actual"));
}

TEST(RecordedSide, ANanOnOneSideFails) {
  EXPECT_EQ(judged(float32({1, nan}), extremes(1, 1)).verdict, Verdict::failed);
  EXPECT_EQ(judged(float32({1, 1}), extremes(nan, nan)).verdict, Verdict::failed);
  Statistics counted = extremes(1, 1);
  counted.nan = 1;
  counted.inf = 0;
  EXPECT_EQ(judged(float32({1, nan}), counted).verdict, Verdict::statistics_agree);
  EXPECT_EQ(judged(float32({1, 1}), counted).verdict, Verdict::failed);
}

}  // namespace
}  // namespace assay::recorded_side_test
