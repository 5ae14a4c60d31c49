#include "judged.h"

// What is left of a tolerance for a tensor that is smaller than it, and bounds that each element has of its
// own.
namespace assay::judge_scale_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TEST(Judge, ZerosNeverPassForATensorBelowItsTolerance) {
  const std::vector<double> small = {1e-6, -2e-6, 3e-6}, zeros = {0, 0, 0};
  for (const double scale : {1.0, 1e-30}) {
    std::vector<double> r = small;
    for (double& v : r) v *= scale;
    const Finding f = Given().count(0).judge(float32(zeros), float32(r));
    EXPECT_EQ(f.verdict, Verdict::mistrusted);
    EXPECT_THAT(f.reason, HasSubstr("3 of 3 values are below their allowed error"));
    EXPECT_LE(f.ratio, 1);
  }
}

// Squares of these leave the range of float64.
TEST(Judge, ZerosNeverPassForTinyFloat64) {
  Given given;
  given.dtype(DType::float64).count(0);
  const Finding f = given.judge(tensor(DType::float64, {0, 0}), tensor(DType::float64, {1e-170, 3e-200}));
  EXPECT_EQ(f.verdict, Verdict::mistrusted);
  EXPECT_EQ(f.metrics->relative_l2, 1);
}

TEST(Judge, ZerosNeverPassForATableThatAllowsThem) {
  Policy generous = powers();
  for (Row& row : generous.rows) row.atol = row.rtol = 1;
  EXPECT_EQ(Given(generous).count(0).judge(float32({0, 0}), float32({1, 2})).verdict, Verdict::mistrusted);
  EXPECT_EQ(Given(generous).judge(float32({0, 0}), float32({1e9, 2})).verdict, Verdict::mistrusted);
}

TEST(Judge, BelowItsToleranceATensorIsJudgedByItsScale) {
  const std::vector<double> r = {1e-6, -2e-6, 3e-6};
  const Finding close = Given().count(0).judge(float32({1.00001e-6, -2e-6, 3e-6}), float32(r));
  EXPECT_EQ(close.verdict, Verdict::passed);
  EXPECT_THAT(close.rule, HasSubstr("by relative L2"));
  const Finding off = Given().count(0).judge(float32({1.01e-6, -2e-6, 3e-6}), float32(r));
  EXPECT_EQ(off.verdict, Verdict::mistrusted);
  EXPECT_EQ(Given().count(0).judge(float32(r), float32(r)).verdict, Verdict::passed);
  EXPECT_EQ(Given().count(0).judge(float32({1e-30, 0}), float32({0, 0})).verdict, Verdict::mistrusted);
}

// A mask of -inf makes no value large.
TEST(Judge, InfinityDoesNotCountAsTheLargestValue) {
  const Finding large = Given().count(0).judge(float32({-infinity, 1.00015}), float32({-infinity, 1}));
  EXPECT_EQ(large.verdict, Verdict::passed) << large.reason;
  EXPECT_THAT(large.notes, IsEmpty());
  const Finding small = Given().count(0).judge(float32({-infinity, 0}), float32({-infinity, 1e-6}));
  EXPECT_EQ(small.verdict, Verdict::mistrusted);
}

TEST(Judge, DerivedBoundsHoldPerElement) {
  Given given("derived");
  const std::vector<double> bound = {0x1p-10, 0x1p-4, 0};
  given.e.bound = bound;
  given.e.bound_source = "derived: error bound of test";
  const Tensor r = float32({1, 1, 1});
  const Finding inside = given.judge(float32({1 + 0x1p-10, 1 - 0x1p-4, 1}), r);
  EXPECT_EQ(inside.verdict, Verdict::passed);
  EXPECT_EQ(inside.ratio, 1);
  EXPECT_EQ(inside.rule, "derived: error bound of test");
  for (const std::vector<double>& a : {std::vector<double>{1 + 0x1p-10 + 0x1p-23, 1, 1},
                                       {1, 1 + 0x1p-4 + 0x1p-23, 1},
                                       {1, 1, 1 + 0x1p-23}}) {
    EXPECT_EQ(given.judge(float32(a), r).verdict, Verdict::failed);
  }
  EXPECT_EQ(given.judge(float32({1, 1, nan}), r).verdict, Verdict::failed);
}

TEST(Judge, ABoundWithoutGuaranteePassesNothing) {
  Given given("derived");
  const std::vector<double> bound = {infinity, infinity};
  given.e.bound = bound;
  EXPECT_EQ(given.judge(float32({0, 0}), float32({1, 2})).verdict, Verdict::mistrusted);
  EXPECT_EQ(given.judge(float32({1.25, 2}), float32({1, 2})).verdict, Verdict::mistrusted);
  EXPECT_EQ(given.judge(float32({1, 2}), float32({1, 2})).verdict, Verdict::passed);
}

TEST(Judge, ZerosNeverPassForATensorBelowItsBound) {
  Given given("derived");
  const std::vector<double> bound = {0x1p-10, 0x1p-10};
  given.e.bound = bound;
  EXPECT_EQ(given.judge(float32({0, 0}), float32({0x1p-12, 0x1p-11})).verdict, Verdict::mistrusted);
  // Better than zeros, and inside a bound that is proved: passes, and says so.
  const Finding f = given.judge(float32({0x1p-12, 0x1.8p-11}), float32({0x1p-12, 0x1p-11}));
  EXPECT_EQ(f.verdict, Verdict::passed);
  EXPECT_THAT(f.notes, ElementsAre(HasSubstr("every value is below the allowed error")));
  // Where the golden value is zero, noise inside the bound is no worse than it should be.
  EXPECT_EQ(given.judge(float32({0x1p-12, 0}), float32({0, 0})).verdict, Verdict::passed);
}

}  // namespace
}  // namespace assay::judge_scale_test
