#include "assay/golden/bound.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "assay/golden/arithmetic.h"

namespace assay::bound_test {
namespace {

// One step of a random straight-line program, for any scalar.
template <class T>
T step(int operation, const T& a, const T& b) {
  switch (operation) {
    case 0:
      return a + b;
    case 1:
      return a - b;
    case 2:
      return a * b;
    case 3:
      return a / b;
    case 4:
      return sqrt(abs(a));
    case 5:
      return exp(-abs(a));
    case 6:
      return log(abs(a) + T(1));
    case 7:
      return tanh(a);
    case 8:
      return log1p(abs(a));
    case 9:
      return expm1(-abs(a));
    case 10:
      return erf(a);
    case 11:
      return sin(a);
    case 12:
      return cos(a);
    case 13:
      return maximum(a, b);
    case 14:
      return pow(abs(a) + T(1), T(1) / (abs(b) + T(1)));
    default:
      return -a;
  }
}
constexpr int operations = 16;

// Random programs of up to 40 steps: float never leaves the bound around the truth, where a bound is given.
TEST(Bound, HoldsForRandomExpressionsInFloat) {
  std::mt19937 random(11);
  std::uniform_real_distribution<float> uniform(-4, 4);
  double largest_use = 0;
  int checked = 0;
  for (int program = 0; program < 400; ++program) {
    std::vector<float> floats;
    std::vector<Bound> bounds;
    std::vector<Truth> truths;
    const auto input = [&](float x) {
      floats.push_back(x);
      bounds.emplace_back(x);
      truths.emplace_back(x);
    };
    for (int i = 0; i < 4; ++i) input(uniform(random));
    input(0);
    input(std::ldexp(uniform(random), -120));
    for (int i = 0; i < 40; ++i) {
      const int operation = std::uniform_int_distribution(0, operations - 1)(random);
      std::uniform_int_distribution<std::size_t> pick(0, floats.size() - 1);
      const std::size_t a = pick(random), b = pick(random);
      floats.push_back(step(operation, floats[a], floats[b]));
      bounds.push_back(step(operation, bounds[a], bounds[b]));
      truths.push_back(step(operation, truths[a], truths[b]));
      const Bound& bound = bounds.back();
      if (!std::isfinite(bound.value) || !std::isfinite(bound.error) || std::isinf(floats.back())) {
        floats.back() = 1, bounds.back() = 1, truths.back() = 1;
        continue;
      }
      const double error = std::abs(static_cast<double>(truths.back() - Truth(floats.back())));
      // The value itself is a double's, not the truth.
      EXPECT_LE(error, bound.error * (1 + 1e-9) + 1e-12 * std::abs(bound.value))
          << "program " << program << ", step " << i << ", operation " << operation;
      ++checked;
      if (bound.error > 0) largest_use = std::max(largest_use, error / bound.error);
    }
  }
  EXPECT_GT(checked, 10000);
  EXPECT_GT(largest_use, .8) << "the bound is not tight for any of them";
}

TEST(Bound, CountsOneRoundingPerOperation) {
  const ErrorScope scope({0x1p-11, 0x1p-24});
  EXPECT_EQ((Bound(1) + Bound(2)).error, 3 * 0x1p-11);
  EXPECT_EQ((Bound(3) * Bound(5)).error, 15 * 0x1p-11 + 0x1p-24);
  EXPECT_EQ((-Bound(3, .5)).error, .5);
  EXPECT_EQ(abs(Bound(-3, .5)).value, 3);
}

TEST(Bound, IsInfiniteWhereNothingIsGuaranteed) {
  EXPECT_TRUE(std::isinf((Bound(1) / Bound(1, 1)).error));
  EXPECT_TRUE(std::isinf(log(Bound(1, 2)).error));
}

// A base that may be negative has no cube root; the order in which the ends are tried must not hide it.
TEST(Bound, OutsideTheDomainNothingIsGuaranteedOnEitherSide) {
  EXPECT_TRUE(std::isinf(pow(Bound(1, 2), Bound(.5)).error));
  EXPECT_TRUE(std::isinf(pow(Bound(2), Bound(1, infinity)).error));
  EXPECT_TRUE(std::isinf(log1p(Bound(0, 1.5)).error));
  EXPECT_TRUE(std::isinf((Bound(0) * Bound(1, infinity)).error));
  EXPECT_TRUE(std::isinf(log(Bound(0, 1)).error));
  EXPECT_TRUE(std::isinf((Bound(1) / Bound(0, 1)).error));
}

// A mask of -inf is -inf on every device: what becomes of it is bounded.
TEST(Bound, AnInfiniteValueHasNoError) {
  const Bound masked = (Bound(3, .5) * Bound(.125, 1e-9) + Bound(-infinity)) * Bound(.5, 1e-9);
  EXPECT_EQ(masked.value, -infinity);
  EXPECT_EQ(masked.error, 0);
  EXPECT_EQ(exp(masked).value, 0);
  EXPECT_LE(exp(masked).error, 0x1p-149);
  EXPECT_EQ(sqrt(Bound(infinity)).error, 0);
  EXPECT_EQ(larger(Bound(infinity), Bound(1, .5)).error, 0);
  EXPECT_EQ(larger(Bound(-infinity), Bound(1, .5)).error, .5);
  EXPECT_EQ((Bound(1) / Bound(0)).error, 0);
  EXPECT_EQ(sum<Bound>(1, [](auto) { return Bound(infinity); }).error, 0);
  EXPECT_EQ(sum<Bound>(3, [](auto i) { return i == 0 ? Bound(infinity) : Bound(1, .5); }).error, 0);
}

TEST(Bound, NaNIsNeverWithin) {
  const Bound nan = Bound(std::numeric_limits<double>::quiet_NaN());
  EXPECT_TRUE(isnan(nan + Bound(1)));
  for (const Bound& b : {nan + Bound(1), larger(nan, Bound(1)), larger(Bound(1), nan), sqrt(nan),
                         pow(Bound(-1, .25), Bound(.5)), Bound(infinity) - Bound(infinity)}) {
    EXPECT_FALSE(0. <= b.error) << b.value;
  }
}

TEST(ErrorScope, NestsAndEnds) {
  EXPECT_EQ(ErrorScope::current().unit_roundoff, 0x1p-24);
  {
    const ErrorScope outer({0x1p-11, 0x1p-24});
    {
      const ErrorScope inner({0x1p-8, 0x1p-133});
      EXPECT_EQ(ErrorScope::current().unit_roundoff, 0x1p-8);
    }
    EXPECT_EQ(ErrorScope::current().unit_roundoff, 0x1p-11);
  }
  EXPECT_EQ(ErrorScope::current().unit_roundoff, 0x1p-24);
}

// Of both numbers of a pair, against glibc's, which is within 1 ulp.
TEST(BoundLanes, ExpIsWithinTwoUnits) {
  const auto exp_of = [](double x, double y) {
    return exp(BoundLanes<2>(Doubles<2>{x, y}, Doubles<2>{})).value;
  };
  for (double x = -707; x < 709; x += 0.0137) {
    const auto both = exp_of(x, -x / 2);
    EXPECT_NEAR(both[0] / std::exp(x), 1, 3 * 0x1p-52) << x;
    EXPECT_NEAR(both[1] / std::exp(-x / 2), 1, 3 * 0x1p-52) << x;
  }
  const auto ends = exp_of(-infinity, infinity);
  EXPECT_EQ(ends[0], 0);
  EXPECT_EQ(ends[1], infinity);
  EXPECT_TRUE(std::isnan(exp_of(std::nan(""), 0)[0]));
  EXPECT_EQ(exp_of(-0.0, 0)[0], 1);
}

}  // namespace
}  // namespace assay::bound_test
