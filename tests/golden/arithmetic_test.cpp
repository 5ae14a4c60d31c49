#include "assay/golden/arithmetic.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

namespace assay::arithmetic_test {
namespace {

TEST(Sum, IsWrittenLeftToRight) {
  const float floats[] = {1, 0x1p-24f, 0x1p-24f, -1};
  EXPECT_EQ(sum<float>(4, [&](auto i) { return floats[i]; }), 0);
  EXPECT_EQ(sum<float>(4, [&](auto i) { return floats[3 - i]; }), 0x1p-23f);
  EXPECT_EQ(sum<double>(0, [](auto) { return 1.0; }), 0);
  const Bound bound = sum<Bound>(4, [&](auto i) { return Bound(floats[i]); });
  EXPECT_EQ(bound.value, 0x1p-23);
  // three additions over sum |x| = 2 + 2^-23
  EXPECT_EQ(bound.error, 3 * 0x1p-24 * (2 + 0x1p-23));
}

TEST(Sum, OfOneTermIsThatTerm) {
  EXPECT_EQ(sum<Bound>(1, [](auto) { return Bound(3, .5); }).error, .5);
  EXPECT_EQ(sum<Bound>(0, [](auto) { return Bound(3, .5); }).error, 0);
}

// Left to right, right to left, pairwise, in blocks, shuffled, sorted: all within the one bound.
TEST(Sum, BoundHoldsInAnyOrder) {
  std::mt19937 random(7);
  for (int round = 0; round < 50; ++round) {
    std::vector<float> x(static_cast<std::size_t>(std::uniform_int_distribution(1, 300)(random)));
    std::normal_distribution<float> normal(round % 2 == 0 ? 0.f : 3.f);
    for (float& v : x) v = normal(random);
    const auto n = static_cast<std::int64_t>(x.size());
    const Bound bound = sum<Bound>(n, [&](auto i) { return Bound(x[static_cast<std::size_t>(i)]); });
    Truth exact = 0;
    for (const float v : x) exact += Truth(v);
    const auto expect_within = [&](float found) {
      EXPECT_LE(std::abs(static_cast<double>(Truth(found) - exact)), bound.error) << "n = " << n;
    };
    for (int order = 0; order < 6; ++order) {
      expect_within(std::accumulate(x.begin(), x.end(), 0.f));
      std::vector<float> pairs = x;
      while (pairs.size() > 1) {
        for (std::size_t i = 0; i < pairs.size() / 2; ++i) pairs[i] = pairs[2 * i] + pairs[2 * i + 1];
        if (pairs.size() % 2 != 0) pairs[pairs.size() / 2] = pairs.back();
        pairs.resize((pairs.size() + 1) / 2);
      }
      expect_within(pairs[0]);
      float blocks = 0;
      for (std::size_t i = 0; i < x.size(); i += 16) {
        const auto end = std::min(x.size(), i + 16);
        blocks += std::accumulate(x.begin() + static_cast<std::ptrdiff_t>(i),
                                  x.begin() + static_cast<std::ptrdiff_t>(end), 0.f);
      }
      expect_within(blocks);
      order == 4 ? std::ranges::sort(x) : std::ranges::shuffle(x, random);
    }
  }
}

TEST(Constant, CarriesTheErrorOfItsRounding) {
  EXPECT_EQ(constant<float>(.1), .1f);
  EXPECT_EQ(constant<Bound>(.5).error, 0);
  EXPECT_EQ(constant<Bound>(0x1p-140).error, 0);
  EXPECT_EQ(constant<Bound>(0).error, 0);
  EXPECT_GE(constant<Bound>(0x1p-160).error, 0x1p-160);    // below float32's subnormals
  EXPECT_GE(constant<Bound>(0x1.8p-149).error, 0x1p-150);  // between two of them
  EXPECT_EQ(number<Bound>(1 << 24).error, 0);
  EXPECT_GT(number<Bound>((1 << 24) + 1).error, 0);
  const double error = std::abs(static_cast<double>(.1f) - .1);
  EXPECT_GE(constant<Bound>(.1).error, error);
  EXPECT_LE(constant<Bound>(.1).error, 10 * error);
}

TEST(HostScalar, IsRoundedOnce) {
  const Truth third = Truth(1) / Truth(3);
  EXPECT_EQ(host_scalar<double>(third), 1. / 3);
  EXPECT_TRUE(host_scalar<Truth>(third) == third);
}

TEST(Maximum, PropagatesNaN) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_TRUE(isnan(maximum(nan, 1.)));
  EXPECT_TRUE(isnan(maximum(1., nan)));
  EXPECT_EQ(maximum(1., 2.), 2);
  EXPECT_EQ(maximum(2., 1.), 2);
}

TEST(Maximum, BoundHoldsWhicheverWins) {
  EXPECT_EQ(maximum(Bound(1, .5), Bound(3, .25)).error, .25);
  EXPECT_DOUBLE_EQ(maximum(Bound(1, .5), Bound(1.1, 0)).error, .4);
  EXPECT_EQ(maximum(Bound(2, .5), Bound(1, 0)).value, 2);
}

TEST(WithoutCancellation, TakesTheValueOfOneAndTheErrorOfTheOther) {
  const auto better = [](auto x) { return -expm1(x); };
  const auto usual = [](auto x) { return decltype(x)(1) - exp(x); };
  const double x = 0x1p-40;
  EXPECT_EQ(without_cancellation<double>([&] { return better(x); }, [&] { return usual(x); }),
            -std::expm1(x));
  const Bound b =
      without_cancellation<Bound>([&] { return better(Bound(x)); }, [&] { return usual(Bound(x)); });
  EXPECT_EQ(b.value, -std::expm1(x));
  EXPECT_GE(b.error, 0x1p-24);
  const auto unknown = [] { return Bound(1, std::numeric_limits<double>::quiet_NaN()); };
  EXPECT_TRUE(std::isinf(without_cancellation<Bound>([] { return Bound(1); }, unknown).error));
}

}  // namespace
}  // namespace assay::arithmetic_test
