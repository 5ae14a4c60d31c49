#include "assay/golden/truth.h"

#include <gtest/gtest.h>

#include <limits>

namespace assay::truth_test {
namespace {

// Digits from DLMF and OEIS: A002193, A001113, A002162, A049469, A049470, A073744, A019704 and erf(1) from
// A099286.
TEST(Truth, KnowsFiftyDigits) {
  const auto expect_near = [](const Truth& found, const char* digits) {
    const Truth known = Truth::parse(digits);
    EXPECT_LE(static_cast<double>(abs(found - known) / abs(known)), 1e-49) << digits;
  };
  expect_near(sqrt(Truth(2)), "1.41421356237309504880168872420969807856967187537694807");
  expect_near(exp(Truth(1)), "2.71828182845904523536028747135266249775724709369995957");
  expect_near(expm1(Truth(1)), "1.71828182845904523536028747135266249775724709369995957");
  expect_near(log(Truth(2)), "0.69314718055994530941723212145817656807550013436025525");
  expect_near(log1p(Truth(1)), "0.69314718055994530941723212145817656807550013436025525");
  expect_near(sin(Truth(1)), "0.84147098480789650665250232163029899962256306079837107");
  expect_near(cos(Truth(1)), "0.54030230586813971740093660744297660373231042061792223");
  expect_near(tanh(Truth(1)), "0.76159415595576488811945828260479359041276859725793655");
  expect_near(erf(Truth(1)), "0.84270079294971486934122063508260925929606699796630291");
  expect_near(pow(Truth(2), Truth(.5)), "1.41421356237309504880168872420969807856967187537694807");
}

TEST(Truth, ComputesExactlyWhereDoubleRounds) {
  const Truth third = Truth(1) / Truth(3);
  EXPECT_FALSE(third == Truth(1. / 3));
  EXPECT_TRUE(Truth(1) < Truth(1) + Truth(0x1p-160));  // parsed digits would hide a lost precision
  EXPECT_EQ(static_cast<double>(third), 1. / 3);
  EXPECT_TRUE(Truth(1e30) + Truth(1) - Truth(1e30) == Truth(1));
  EXPECT_FALSE(Truth::parse("0.1") == Truth(.1));
}

TEST(Truth, OrdersAndTreatsNaNAsIEEE) {
  const Truth nan(std::numeric_limits<double>::quiet_NaN()),
      infinity(std::numeric_limits<double>::infinity());
  EXPECT_TRUE(isnan(nan));
  EXPECT_TRUE(isinf(infinity));
  EXPECT_FALSE(isnan(infinity) || isinf(nan));
  EXPECT_FALSE(nan == nan || nan < Truth(1) || nan > Truth(1) || nan <= nan);
  EXPECT_TRUE(Truth(1) < infinity && -infinity < Truth(1));
  EXPECT_TRUE(isnan(infinity - infinity));
}

TEST(Truth, CopiesAreIndependent) {
  Truth a = 2;
  Truth b = a;
  b += Truth(1);
  EXPECT_TRUE(a == Truth(2) && b == Truth(3));
  a = b;
  a = *&a;
  EXPECT_TRUE(a == Truth(3));
  EXPECT_ANY_THROW(Truth::parse("one"));
}

}  // namespace
}  // namespace assay::truth_test
