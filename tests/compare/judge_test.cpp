#include <fmt/format.h>

#include <cmath>
#include <cstring>

#include "judged.h"

namespace assay::judge_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TEST(Judge, ShapeDecidesFirst) {
  const Finding f = Given().judge(float32({nan, 2}), tensor(DType::int32, {1, 2}).reshaped({2, 1}));
  EXPECT_EQ(f.verdict, Verdict::not_comparable);
  EXPECT_EQ(f.reason, "shape [2] against [2, 1]");
  EXPECT_FALSE(f.metrics);
}

TEST(Judge, KindOfDtypeDecidesNext) {
  const Finding f = Given().judge(float32({1, 2}), tensor(DType::int32, {1, 2}));
  EXPECT_EQ(f.verdict, Verdict::not_comparable);
  EXPECT_EQ(f.reason, "float32 against int32");
}

TEST(Judge, NaNOnOneSideFailsWhateverIsAllowed) {
  Policy generous = powers();
  for (Row& row : generous.rows) row.atol = row.rtol = 1e300;
  for (const auto& [a, r] : {std::pair(nan, 1.0), std::pair(1.0, nan), std::pair(infinity, 1.0),
                             std::pair(infinity, -infinity), std::pair(nan, infinity)}) {
    for (const bool known : {false, true}) {
      Given given(generous);
      if (known) given.count(5);
      const Finding f = given.judge(float32({1, 2, a, 4}), float32({1, 2, r, 4}));
      EXPECT_EQ(f.verdict, Verdict::failed) << a << ' ' << r;
      EXPECT_EQ(f.reason,
                fmt::format("NaN or Inf differ in 1 of 4 elements, first at [2]: {} against {}", a, r));
      EXPECT_EQ(worst_element(*f.metrics), 2);
      EXPECT_EQ(std::isnan(f.actual_value), std::isnan(a));
      EXPECT_EQ(std::isnan(f.reference_value), std::isnan(r));
    }
  }
  EXPECT_EQ(Given().judge(float32({nan, infinity, 1}), float32({nan, infinity, 1})).verdict, Verdict::passed);
}

TEST(Judge, NaNAloneIsNoEvidenceButInfinitiesAre) {
  const Finding f = Given().judge(float32({nan, nan}), float32({nan, nan}));
  EXPECT_EQ(f.verdict, Verdict::mistrusted);
  EXPECT_EQ(f.reason, "no element is a number on both sides: nothing was judged");
  EXPECT_EQ(Given().judge(float32({-infinity, infinity}), float32({-infinity, infinity})).verdict,
            Verdict::passed);
}

TEST(Judge, IntegersAreHeldToEveryBit) {
  const Finding equal = Given().judge(tensor(DType::int64, {1, 2}), tensor(DType::int64, {1, 2}));
  EXPECT_EQ(equal.verdict, Verdict::passed);
  EXPECT_EQ(equal.rule, "integers: every bit equal");
  const Finding f = Given().judge(tensor(DType::int32, {1, 2, 3}), tensor(DType::int64, {1, 2, 4}));
  EXPECT_EQ(f.verdict, Verdict::failed);
  EXPECT_EQ(f.reason, "1 of 3 elements differ");
  EXPECT_EQ(worst_element(*f.metrics), 2);
  EXPECT_EQ(f.actual_value, 3);
  EXPECT_EQ(f.reference_value, 4);
}

TEST(Judge, LargeIntegersAreNotRounded) {
  const std::int64_t big = std::int64_t{1} << 53;
  const std::vector<std::int64_t> a = {7, big + 1}, r = {7, big};
  const Finding f = Given().judge(Tensor::from_indices({2}, a), Tensor::from_indices({2}, r));
  EXPECT_EQ(f.verdict, Verdict::failed);
  EXPECT_EQ(worst_element(*f.metrics), 1);
  EXPECT_EQ(f.metrics->max_abs, 1);
  EXPECT_THAT(f.notes, ElementsAre("exactly: actual 9007199254740993, reference 9007199254740992"));
}

TEST(Judge, PromisedBitsBeatTheTable) {
  Given given;
  given.e.promises_bits = true;
  given.e.bits_reason = "transpose copies: every bit equal";
  EXPECT_EQ(given.judge(float32({1, 2}), float32({1, 2})).verdict, Verdict::passed);
  const Finding f = given.judge(float32({1, 2}), float32({1, 2 + 0x1p-22}));
  EXPECT_EQ(f.verdict, Verdict::failed);
  EXPECT_EQ(f.rule, "transpose copies: every bit equal");
  EXPECT_EQ(f.ratio, infinity);
}

// What has no error, or no number, differs in bits all the same, and the report must point at it.
TEST(Judge, BitwiseNamesTheElementThatDiffers) {
  const Finding zeros = Given("bitwise").judge(float32({1, 2, -0.0}), float32({1, 2, 0.0}));
  EXPECT_EQ(zeros.verdict, Verdict::failed);
  EXPECT_EQ(zeros.rule, "bitwise: every bit equal");
  EXPECT_EQ(worst_element(*zeros.metrics), 2);
  EXPECT_TRUE(std::signbit(zeros.actual_value));

  const std::uint32_t payloads[] = {0x7fc00000, 0x7fc00001};
  std::vector<std::byte> bytes(sizeof payloads);
  std::memcpy(bytes.data(), payloads, sizeof payloads);
  const Finding payload = Given("bitwise").judge(Tensor(DType::float32, {2}, bytes), float32({nan, nan}));
  EXPECT_EQ(payload.verdict, Verdict::failed);
  EXPECT_EQ(worst_element(*payload.metrics), 1);

  // An infinite error at [1], and infinity on one side only at [3]: values and place must belong together.
  const Finding both = Given("bitwise").judge(float32({1, 2, 3, infinity}), float32({1, 5, 3, 4}));
  EXPECT_EQ(worst_element(*both.metrics), 3);
  EXPECT_EQ(both.actual_value, infinity);
  EXPECT_EQ(both.reference_value, 4);
}

TEST(Judge, NoRowIsNoPass) {
  Given given(powers());
  given.dtype(DType::float64);
  const Finding f = given.judge(tensor(DType::float64, {1, 2, nan}), tensor(DType::float64, {1, 3, 4}));
  EXPECT_EQ(f.verdict, Verdict::no_rule);
  EXPECT_THAT(f.reason, HasSubstr("powers has no row for float64"));
  EXPECT_EQ(worst_element(*f.metrics), 2);
  EXPECT_TRUE(std::isnan(f.actual_value));
  EXPECT_EQ(f.reference_value, 4);
  EXPECT_EQ(given.judge(tensor(DType::float64, {1}), tensor(DType::float64, {1})).verdict, Verdict::passed);
}

// The reference is 1, so that the limit is 2t; errors of whole float32 units around it.
TEST(Judge, TheRowIsTheOneOfTheCount) {
  const auto verdict = [](double error, std::int64_t count) {
    return Given().count(count).judge(float32({1 + error}), float32({1})).verdict;
  };
  EXPECT_EQ(verdict(1.9e-4, 0), Verdict::passed);
  EXPECT_EQ(verdict(2.1e-4, 0), Verdict::failed);
  EXPECT_EQ(verdict(2.1e-4, 1999), Verdict::failed);
  EXPECT_EQ(verdict(2.1e-4, 2000), Verdict::passed);
  EXPECT_EQ(verdict(3.9e-4, 9999), Verdict::passed);
  EXPECT_EQ(verdict(4.1e-4, 9999), Verdict::failed);
  EXPECT_EQ(verdict(4.1e-4, 10000), Verdict::passed);
  EXPECT_EQ(verdict(8.1e-4, 19999), Verdict::failed);
  EXPECT_EQ(verdict(8.1e-4, 20000), Verdict::passed);
  EXPECT_EQ(verdict(15.9e-3, 199999), Verdict::failed);
  EXPECT_EQ(verdict(15.9e-3, 200000), Verdict::passed);
  EXPECT_EQ(verdict(16.1e-3, 200000), Verdict::failed);
  EXPECT_EQ(verdict(16.1e-3, std::numeric_limits<std::int64_t>::max()), Verdict::failed);
  const Finding f = Given().count(2000).judge(float32({1 + 2.1e-4}), float32({1}));
  EXPECT_EQ(f.rule, "telechat3 float32, count >= 2000: |a-g| <= 0.0002 (1+|g|) (count 2000)");
}

TEST(Judge, ACountBelowEveryRowIsNoRule) {
  EXPECT_EQ(Given().count(-1).judge(float32({1.5}), float32({1})).verdict, Verdict::no_rule);
}

TEST(Judge, TheLimitItselfPasses) {
  // Reference 1: t (1 + 1) = 2^-9.
  const auto judge = [](double error) {
    return Given(powers()).count(1).judge(float32({1 + error}), float32({1}));
  };
  EXPECT_EQ(judge(0x1p-9).verdict, Verdict::passed);
  EXPECT_EQ(judge(0x1p-9).ratio, 1);
  EXPECT_EQ(judge(-0x1p-9).verdict, Verdict::passed);
  const Finding above = judge(0x1p-9 + 0x1p-23);
  EXPECT_EQ(above.verdict, Verdict::failed);
  EXPECT_GT(above.ratio, 1);
  EXPECT_EQ(above.reason, "1 of 1 elements outside, error/allowed 1");
  EXPECT_EQ(judge(0x1p-9 - 0x1p-24).verdict, Verdict::passed);
}

TEST(Judge, WithoutACountTheStrictestRowDecides) {
  const auto judge = [](double error) { return Given(powers()).judge(float32({1 + error}), float32({1})); };
  const Finding inside = judge(0x1p-9);
  EXPECT_EQ(inside.verdict, Verdict::passed);
  EXPECT_THAT(inside.rule, HasSubstr("(count unknown: strictest row)"));
  const Finding between = judge(0x1p-8);
  EXPECT_EQ(between.verdict, Verdict::no_rule);
  EXPECT_EQ(between.reason,
            "add a [[count]] rule: passes only with an accumulation count >= 100, which is unknown");
  EXPECT_EQ(between.ratio, 2) << "of the strictest row";
  const Finding outside = judge(0x1p-6);
  EXPECT_EQ(outside.verdict, Verdict::failed);
  EXPECT_EQ(outside.ratio, 8);
}

TEST(Judge, RequiredIsTheSmallestToleranceThatPasses) {
  const std::vector<double> r = {1, -3, 0.5, 0}, a = {1 + 0x1p-6, -3 - 0x1p-5, 0.5, 0x1p-7};
  const Finding f = Given(powers()).count(1).judge(float32(a), float32(r));
  EXPECT_EQ(f.verdict, Verdict::failed);
  EXPECT_EQ(f.required, 0x1p-7);  // all three errors are 2^-7 (1 + |r|)
  EXPECT_TRUE(std::isnan(Given("torch").judge(float32({2}), float32({1})).required)) << "of another form";
  EXPECT_TRUE(std::isnan(Given(powers()).judge(float32({nan}), float32({1})).required));
}

TEST(Judge, TheRowsOfAnotherDtypeSayWhy) {
  Given given;
  given.dtype(DType::bfloat16).count(0).e.row_reason = "bfloat16 was used upstream, first in x";
  const Finding f = given.judge(float32({1.05}), float32({1}));
  EXPECT_EQ(f.verdict, Verdict::passed);
  EXPECT_THAT(f.rule, HasSubstr("telechat3 bfloat16"));
  EXPECT_THAT(f.rule, HasSubstr("bfloat16 was used upstream, first in x"));
}

// 70000 rounds to infinity in float16; the kernel has no other choice. The exemption has a name.
TEST(Judge, AnInfinityThatTheDtypeForcesPasses) {
  Given given;
  given.dtype(DType::float16).count(0);
  const Finding f =
      given.judge(tensor(DType::float16, {1, infinity, -infinity}), tensor(DType::float64, {1, 70000, -1e9}));
  EXPECT_EQ(f.verdict, Verdict::passed) << f.reason;
  EXPECT_EQ(f.metrics->overflowed, 2);
  EXPECT_THAT(f.notes, ElementsAre(HasSubstr("2 elements of the reference are beyond float16")));
  const auto verdict = [&](double a, double r) {
    return given.judge(tensor(DType::float16, {1, a}), tensor(DType::float64, {1, r})).verdict;
  };
  EXPECT_EQ(verdict(infinity, 65519), Verdict::failed) << "rounds to 65504";
  EXPECT_EQ(verdict(infinity, 65520), Verdict::passed) << "rounds to infinity";
  EXPECT_EQ(verdict(-infinity, 70000), Verdict::failed);
  EXPECT_EQ(verdict(nan, 70000), Verdict::failed);
}

TEST(Judge, OneSidedErrorsAreNoted) {
  std::vector<double> r(100, 1), a(100, 1.01);
  Finding f = Given().count(0).judge(float32(a), float32(r));
  EXPECT_EQ(f.verdict, Verdict::failed);
  EXPECT_THAT(f.notes,
              ElementsAre(HasSubstr("100 % of the errors point the same way (actual above reference)")));
  for (std::size_t i = 0; i < a.size(); i += 2) a[i] = 0.99;
  EXPECT_THAT(Given().count(0).judge(float32(a), float32(r)).notes, IsEmpty());
}

TEST(Judge, NanThatPassesIsSaid) {
  constexpr double nan = std::numeric_limits<double>::quiet_NaN();
  const Tensor t = float32({1, nan, nan, 2});
  Finding f;
  Expectation e;
  const Policy policy = load_policy("telechat3");
  e.policy = &policy;
  judge(f, t, t, e);
  EXPECT_EQ(f.verdict, Verdict::passed);
  EXPECT_THAT(f.notes, testing::ElementsAre("NaN on both sides in 2 of 4 elements"));
}

}  // namespace
}  // namespace assay::judge_test
