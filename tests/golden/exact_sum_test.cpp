#include "assay/golden/exact_sum.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <boost/multiprecision/cpp_int.hpp>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

namespace assay::exact_sum_test {
namespace {

using Integer = boost::multiprecision::cpp_int;

/// The sum as an integer multiple of 2^-1074, by Boost; finite values only.
Integer integer_sum(const std::vector<double>& values) {
  Integer sum = 0;
  for (const double value : values) {
    int exponent = 0;
    const double fraction = std::frexp(value, &exponent);
    if (value == 0) continue;
    const int shift = exponent - 53 + 1074;
    Integer term = static_cast<std::int64_t>(std::ldexp(fraction, 53));
    sum += shift >= 0 ? Integer(term << shift) : Integer(term / (Integer(1) << -shift));
  }
  return sum;
}

/// Rounded to nearest even with `precision` bits and no exponent below `min_exponent` (of the last bit).
double round_integer(Integer sum, int precision, int min_exponent) {
  const bool negative = sum < 0;
  if (negative) sum = -sum;
  if (sum == 0) return 0;
  const int width = static_cast<int>(msb(sum)) + 1;
  const int drop = std::max({width - precision, min_exponent + 1074, 0});
  Integer kept = sum >> drop;
  const Integer rest = sum - (kept << drop), half = drop == 0 ? Integer(0) : Integer(1) << (drop - 1);
  if (drop > 0 && (rest > half || (rest == half && (kept & 1) != 0))) ++kept;
  const double magnitude = std::ldexp(kept.convert_to<double>(), drop - 1074);
  return negative ? -magnitude : magnitude;
}

double exact(const std::vector<double>& values, DType dtype = DType::float64) {
  ExactSum sum;
  for (const double value : values) sum.add(value);
  return sum.round(dtype);
}

TEST(ExactSum, RoundsOnceToEveryDtype) {
  std::mt19937_64 random(20260101);
  for (const DType dtype : {DType::float64, DType::float32, DType::float16, DType::bfloat16}) {
    const FloatFormat& format = format_of(dtype);
    for (int round = 0; round < 3000; ++round) {
      const int spread = round % 3 == 0 ? 5 : round % 3 == 1 ? 60 : 600;
      std::vector<double> values(1 + random() % 12);
      for (double& value : values) {
        const double fraction = std::ldexp(static_cast<double>(random() >> 11), -53);
        value = std::ldexp(random() % 2 == 0 ? fraction : -fraction,
                           static_cast<int>(random() % static_cast<unsigned>(2 * spread)) - spread);
        if (round % 5 == 0) value = std::round(value);  // many ties and cancellations
        if (round % 7 == 0 && &value != values.data()) value = -values[0];
      }
      double expected = round_integer(integer_sum(values), format.precision(),
                                      format.min_exponent() - format.fraction_bits);
      if (std::abs(expected) > max_finite(dtype))
        expected = std::copysign(std::numeric_limits<double>::infinity(), expected);
      EXPECT_EQ(exact(values, dtype), expected) << name(dtype) << " round " << round;
    }
  }
}

TEST(ExactSum, ExtremesOfTheRange) {
  const double tiny = std::numeric_limits<double>::denorm_min(), huge = std::numeric_limits<double>::max();
  EXPECT_EQ(exact({tiny, tiny}), 2 * tiny);
  EXPECT_EQ(exact({huge, huge, -huge}), huge);  // no overflow on the way
  EXPECT_EQ(exact({huge, huge}), std::numeric_limits<double>::infinity());
  EXPECT_EQ(exact({huge, tiny, -huge}), tiny);
  EXPECT_EQ(exact({-huge, tiny, huge, -tiny, -tiny}), -tiny);
  // Half of float32's last bit decided by a term 2^-1000 below it: rounding twice would lose it.
  EXPECT_EQ(exact({1, std::ldexp(1, -24), std::ldexp(1, -1000)}, DType::float32), 1 + std::ldexp(1, -23));
  EXPECT_EQ(exact({1, std::ldexp(1, -24)}, DType::float32), 1);
  EXPECT_EQ(exact({1, std::ldexp(1, -24), std::ldexp(-1, -1000)}, DType::float32), 1);
}

// A tie at the last bit that a term far below decides.
TEST(ExactSum, TiesSeeTheLastTerm) {
  const double tie = std::ldexp(1, -53), speck = std::ldexp(1, -1000);
  EXPECT_EQ(exact({1, tie}), 1);
  EXPECT_EQ(exact({1, tie, speck}), 1 + 2 * tie);
  EXPECT_EQ(exact({1, tie, -speck}), 1);
  EXPECT_EQ(exact({-1, -tie, -speck}), -1 - 2 * tie);
}

TEST(ExactSum, SpecialValuesAsIeee) {
  const double inf = std::numeric_limits<double>::infinity();
  EXPECT_EQ(exact({1, inf, 2}), inf);
  EXPECT_EQ(exact({-inf, 1e308}), -inf);
  EXPECT_TRUE(std::isnan(exact({inf, -inf})));
  EXPECT_TRUE(std::isnan(exact({1, NAN})));
  EXPECT_FALSE(std::signbit(exact({})));
  EXPECT_TRUE(std::signbit(exact({-0.0, -0.0})));
  EXPECT_FALSE(std::signbit(exact({-0.0, 0.0})));
  EXPECT_FALSE(std::signbit(exact({1, -1})));
}

TEST(ExactSum, ManyTermsAndAnyOrder) {
  std::mt19937_64 random(7);
  std::vector<double> values;
  for (int i = 0; i < 20000; ++i) {
    values.push_back(std::bit_cast<double>((random() & 0x800fffffffffffff) | (random() % 1900) << 52));
  }
  const double expected = round_integer(integer_sum(values), 53, -1074);
  EXPECT_EQ(exact(values), expected);
  std::reverse(values.begin(), values.end());
  EXPECT_EQ(exact(values), expected);
  std::shuffle(values.begin(), values.end(), random);
  EXPECT_EQ(exact(values), expected);
}

TEST(ExactSum, ClearStartsAgain) {
  ExactSum sum;
  sum.add(1e300);
  sum.add(NAN);
  sum.clear();
  sum.add(2);
  EXPECT_EQ(sum.round(), 2);
}

}  // namespace
}  // namespace assay::exact_sum_test
