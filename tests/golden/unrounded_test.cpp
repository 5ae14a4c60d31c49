#include "assay/golden/unrounded.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <limits>
#include <random>
#include <vector>

#include "assay/golden/arithmetic.h"
#include "assay/golden/error.h"

namespace assay::unrounded_test {
namespace {

using testing::ElementsAre;

constexpr double huge = std::numeric_limits<double>::max(), tiny = std::numeric_limits<double>::denorm_min();

std::vector<double> parts_of(const Unrounded& number) {
  std::vector<double> parts = {number.nearest()};
  number.for_rest([&](double part) { parts.push_back(part); });
  return parts;
}

template <class T>
Unrounded exact_sum_of(const std::vector<T>& terms) {
  UnroundedSum sum;
  sum.add(std::ssize(terms), [&](auto i) { return terms[static_cast<std::size_t>(i)]; });
  return sum.value();
}

// Exponents within `spread` of 0: few bits between the terms, or more than several float64 hold.
std::vector<double> random_terms(std::mt19937_64& random, int spread) {
  std::vector<double> terms(1 + random() % 60);
  for (double& term : terms) {
    const double fraction = std::ldexp(static_cast<double>(random() >> (random() % 4 == 0 ? 50 : 11)), -53);
    term = std::ldexp(random() % 2 == 0 ? fraction : -fraction,
                      static_cast<int>(random() % static_cast<unsigned>(2 * spread + 1)) - spread);
    if (random() % 8 == 0) term = -terms[0];
  }
  return terms;
}

class RandomSums : public testing::TestWithParam<int> {
 protected:
  std::mt19937_64 random{20260301};
  std::vector<double> next() { return random_terms(random, GetParam()); }
  static constexpr int rounds = 2000;
};
INSTANTIATE_TEST_SUITE_P(Spread, RandomSums, testing::Values(0, 3, 20, 50, 100, 300, 1000));

// Exact integers of ExactSum, which is held against Boost, are the oracle.
TEST_P(RandomSums, PartsAreNearestToWhatIsLeft) {
  for (int round = 0; round < rounds; ++round) {
    const std::vector<double> terms = next();
    ExactSum left;
    for (const double term : terms) left.add(term);
    for (const double part : parts_of(exact_sum_of(terms))) {
      ASSERT_EQ(part, left.round()) << "round " << round;
      left.add(-part);
    }
    ASSERT_EQ(left.round(), 0) << "round " << round;
  }
}

TEST_P(RandomSums, AreRoundedOnceToEveryDtype) {
  for (int round = 0; round < rounds; ++round) {
    const std::vector<double> terms = next();
    ExactSum expected;
    for (const double term : terms) expected.add(term);
    const Unrounded sum = exact_sum_of(terms);
    for (const DType dtype : {DType::float64, DType::float32, DType::bfloat16, DType::float8_e4m3fn}) {
      const double e = expected.round(dtype);
      ASSERT_TRUE(sum.round(dtype) == e || (std::isnan(e) && std::isnan(sum.round(dtype))))
          << name(dtype) << " round " << round;
    }
  }
}

TEST_P(RandomSums, SumsOfShardsHaveThePartsOfTheWhole) {
  for (int round = 0; round < rounds; ++round) {
    std::vector<double> terms = next();
    const std::vector<double> whole = parts_of(exact_sum_of(terms));
    std::ranges::shuffle(terms, random);
    std::vector<Unrounded> shards;
    for (std::size_t begin = 0; begin < terms.size();) {
      const std::size_t end = begin + 1 + random() % (terms.size() - begin);
      shards.push_back(exact_sum_of(std::vector(terms.begin() + static_cast<std::ptrdiff_t>(begin),
                                                terms.begin() + static_cast<std::ptrdiff_t>(end))));
      begin = end;
    }
    ASSERT_EQ(parts_of(exact_sum_of(shards)), whole) << "round " << round;
    Unrounded one_by_one = 0;
    for (const Unrounded& shard : shards) one_by_one = one_by_one + shard;
    ASSERT_EQ(parts_of(one_by_one), whole) << "round " << round;
  }
}

TEST(Unrounded, TiesAreBrokenByWhatIsFarBelow) {
  for (const double far : {tiny, -tiny}) {
    const Unrounded sum = exact_sum_of<double>({1, 0x1p-53, far});
    EXPECT_EQ(sum.nearest(), far > 0 ? 1 + 0x1p-52 : 1);
    EXPECT_EQ(exact_sum_of<double>({1, 0x1p-24, far}).round(DType::float32), far > 0 ? 1 + 0x1p-23 : 1);
  }
  EXPECT_THAT(parts_of(exact_sum_of<double>({1, 0x1p-53})), ElementsAre(1, 0x1p-53));
}

TEST(Unrounded, SpecialValuesHaveNoOrder) {
  EXPECT_EQ(exact_sum_of<double>({1, infinity, huge, 0x1p-200}).nearest(), infinity);
  EXPECT_EQ(exact_sum_of<double>({-infinity, huge, huge}).nearest(), -infinity);
  for (const auto& terms :
       {std::vector{infinity, 1., -infinity}, {std::nan(""), infinity}, {-std::nan("")}}) {
    const double sum = exact_sum_of(terms).nearest();
    EXPECT_TRUE(std::isnan(sum) && !std::signbit(sum));
  }
}

TEST(Unrounded, SignsOfZero) {
  const auto bits = [](double v) { return std::bit_cast<std::uint64_t>(v); };
  EXPECT_EQ(bits(exact_sum_of<double>({-0., -0.}).nearest()), bits(-0.));
  EXPECT_EQ(bits(exact_sum_of<double>({-0., 0.}).nearest()), bits(0.));
  EXPECT_EQ(bits(exact_sum_of<double>({-1., 1., 0x1p-70, -0x1p-70}).nearest()), bits(0.));
  // In operators as in float64, where a sum starts from +0.
  EXPECT_EQ(bits(sum<Unrounded>(2, [](auto) { return Unrounded(-0.); }).nearest()), bits(0.));
  EXPECT_EQ(bits(sum<Unrounded>(0, [](auto) { return Unrounded(1); }).nearest()), bits(0.));
}

TEST(Unrounded, OnlyAResultBeyondTheRangeIsAnError) {
  EXPECT_THAT(parts_of(exact_sum_of<double>({huge, huge, -huge, tiny})), ElementsAre(huge, tiny));
  EXPECT_THAT(
      [] {
        exact_sum_of<double>({huge, huge});
      },
      testing::ThrowsMessage<Error>(testing::HasSubstr("beyond the range of float64")));
}

TEST(Unrounded, OnlySumsAreExact) {
  const Unrounded x = Unrounded(1) + Unrounded(0x1p-80);
  EXPECT_THAT(parts_of(x), ElementsAre(1, 0x1p-80));
  EXPECT_THAT(parts_of(x - 1), ElementsAre(0x1p-80));
  EXPECT_THAT(parts_of(-x), ElementsAre(-1, -0x1p-80));
  EXPECT_THAT(parts_of(x * 3), ElementsAre(3));
  EXPECT_THAT(parts_of(x / 4), ElementsAre(.25));
  EXPECT_THAT(parts_of(sqrt(x)), ElementsAre(1));
  Unrounded y = x;
  EXPECT_THAT(parts_of(y), ElementsAre(1, 0x1p-80));
  y *= 2;
  EXPECT_THAT(parts_of(y /= 4), ElementsAre(.5));
}

TEST(Summation, ExactRoundsTheSumAlone) {
  const SummationScope scope({.exact = true});
  const double terms[] = {1, 0x1p-24, 0x1p-53, -1};
  EXPECT_EQ(sum<double>(4, [&](auto i) { return terms[i]; }), 0x1p-24 + 0x1p-53);
  EXPECT_EQ(sum<float>(3, [&](auto i) { return static_cast<float>(terms[i]); }), 1 + 0x1p-23f);
}

}  // namespace
}  // namespace assay::unrounded_test
