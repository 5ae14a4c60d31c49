#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <boost/multiprecision/cpp_int.hpp>
#include <cfenv>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "assay/golden/error.h"
#include "assay/golden/exact_sum.h"
#include "instruction_sets.h"

namespace assay::exact_sum_simd_test {
namespace {

using Integer = boost::multiprecision::cpp_int;
constexpr double inf = std::numeric_limits<double>::infinity();
constexpr int unit = -2148;  // the last bit of any product of two float64

Integer in_units(double value, int unit_of_value) {
  if (value == 0) return 0;
  int exponent = 0;
  const Integer fraction = static_cast<std::int64_t>(std::ldexp(std::frexp(value, &exponent), 53));
  const int shift = exponent - 53 - unit_of_value;
  return shift >= 0 ? Integer(fraction << shift) : Integer(fraction / (Integer(1) << -shift));
}

/// Whether the sum is `value` units: taken out again, nothing may be left. A rest of one unit rounds to a
/// zero of its sign.
bool equal(ExactSum sum, Integer value) {
  sum.add(0);  // -0 is no rest
  const double sign = value < 0 ? 1 : -1;
  if (value < 0) value = -value;
  for (int exponent = unit; value > 0; exponent += 8, value >>= 8) {
    const auto part = static_cast<double>(static_cast<unsigned>(value & 0xff));
    const int half = std::min(exponent / 2, 1015);
    sum.add_product(sign * std::ldexp(part, half), std::ldexp(1, exponent - half));
  }
  const double tiny = std::numeric_limits<double>::denorm_min();
  if (sum.round() != 0 || std::signbit(sum.round())) return false;
  sum.add_product(-tiny, tiny);
  return std::signbit(sum.round());
}

/// The sum, by what is left after taking it out: the first numbers of the expansion sum = r0 + r1 + r2 + ..,
/// each the rest rounded. Two exact sums are equal if these are.
std::vector<std::uint64_t> expansion(ExactSum sum) {
  std::vector<std::uint64_t> parts;
  for (int i = 0; i < 6; ++i) {
    const double part = sum.round();
    parts.push_back(std::bit_cast<std::uint64_t>(part));
    if (part == 0 || !std::isfinite(part)) break;
    sum.add(-part);
  }
  return parts;
}

template <class T>
std::vector<std::uint64_t> one_by_one(std::span<const T> x) {
  ExactSum sum;
  for (const T value : x) sum.add(static_cast<double>(value));
  return expansion(sum);
}
template <class T>
std::vector<std::uint64_t> in_bulk(std::span<const T> x) {
  ExactSum sum;
  sum.add(x);
  return expansion(sum);
}
template <class T>
std::vector<std::uint64_t> products_one_by_one(std::span<const T> a, std::span<const T> b) {
  ExactSum sum;
  for (std::size_t i = 0; i < a.size(); ++i)
    sum.add_product(static_cast<double>(a[i]), static_cast<double>(b[i]));
  return expansion(sum);
}
template <class T>
std::vector<std::uint64_t> products_in_bulk(std::span<const T> a, std::span<const T> b) {
  ExactSum sum;
  sum.add_products(a, b);
  return expansion(sum);
}

struct Fill {
  const char* name;
  std::function<double(std::mt19937_64&, std::size_t)> value;  // rounded to the element type
};

double normal(std::mt19937_64& random) {
  return std::normal_distribution<double>()(random);
}

const std::vector<Fill>& fills() {
  static const std::vector<Fill> all = {
      {"normal", [](auto& random, std::size_t) { return normal(random); }},
      {"positive", [](auto& random, std::size_t) { return std::abs(normal(random)); }},
      {"integers", [](auto& random, std::size_t) { return static_cast<double>(random() % 1000) - 500; }},
      {"cancelling",
       [](auto& random, std::size_t i) {
         static double last = 0;
         return i % 2 == 0 ? last = std::exp(4 * normal(random)) : -last * (1 + (i % 97 == 0) * 1e-6);
       }},
      {"200 binades",
       [](auto& random, std::size_t) {
         return std::ldexp(normal(random), static_cast<int>(random() % 200) - 100);
       }},
      {"every binade of float32",
       [](auto& random, std::size_t) {
         return std::ldexp(normal(random), static_cast<int>(random() % 275) - 149);
       }},
      {"subnormal",
       [](auto& random, std::size_t) {
         return std::ldexp(static_cast<double>(random() % 4096) - 2048, -149);
       }},
      {"huge", [](auto& random, std::size_t) { return std::ldexp(normal(random) / 8, 127); }},
      {"zeros", [](auto&, std::size_t i) { return i % 3 == 0 ? 0.0 : -0.0; }},
      {"negative zeros", [](auto&, std::size_t) { return -0.0; }},
      {"mostly zeros", [](auto& random, std::size_t i) { return i % 1000 == 7 ? normal(random) : 0.0; }},
      {"one NaN", [](auto& random, std::size_t i) { return i == 5 ? std::nan("") : normal(random); }},
      {"infinities", [](auto& random, std::size_t i) { return i % 50 == 5 ? inf : normal(random); }},
      {"both infinities",
       [](auto& random, std::size_t i) { return i == 5   ? inf
                                                : i == 9 ? -inf
                                                         : normal(random); }},
      {"alternating scales",
       [](auto& random, std::size_t i) { return std::ldexp(normal(random), i / 1500 % 2 == 0 ? 60 : -60); }},
  };
  return all;
}
const std::vector<Fill>& double_fills() {
  static const std::vector<Fill> all = [] {
    std::vector<Fill> made = fills();
    made.push_back({"every binade of float64", [](auto& random, std::size_t) {
                      return std::ldexp(normal(random), static_cast<int>(random() % 2060) - 1074);
                    }});
    made.push_back(
        {"near overflow", [](auto& random, std::size_t) { return std::ldexp(normal(random) / 64, 1023); }});
    made.push_back({"float64 subnormal", [](auto& random, std::size_t) {
                      return std::ldexp(static_cast<double>(random() % 4096) - 2048, -1074);
                    }});
    made.push_back({"products underflow", [](auto& random, std::size_t i) {
                      return std::ldexp(normal(random), i % 700 == 3 ? -530 : 0);
                    }});
    return made;
  }();
  return all;
}

template <class T>
const std::vector<Fill>& fills_of() {
  return std::is_same_v<T, float> ? fills() : double_fills();
}

template <class T>
std::vector<T> make(const Fill& fill, std::size_t n, unsigned seed) {
  std::mt19937_64 random(seed);
  std::vector<T> x(n);
  for (std::size_t i = 0; i < n; ++i) x[i] = static_cast<T>(fill.value(random, i));
  return x;
}

template <class T>
class ExactBulk : public testing::Test {};
using Elements = testing::Types<float, double>;
TYPED_TEST_SUITE(ExactBulk, Elements);

TYPED_TEST(ExactBulk, IsTheSumOneByOne) {
  using T = TypeParam;
  for_each_instruction_set([](const char* target) {
    for (const Fill& fill : fills_of<T>()) {
      const auto a = make<T>(fill, 20011, 1), b = make<T>(fill, 20011, 2);
      EXPECT_EQ(in_bulk<T>(a), one_by_one<T>(a)) << fill.name << " on " << target;
      EXPECT_EQ(products_in_bulk<T>(a, b), products_one_by_one<T>(a, b)) << fill.name << " on " << target;
    }
  });
}

TYPED_TEST(ExactBulk, EveryLengthAndAlignment) {
  using T = TypeParam;
  for (const Fill& fill : fills_of<T>()) {
    const auto a = make<T>(fill, 320, 3), b = make<T>(fill, 320, 4);
    for (std::size_t n = 0; n <= 300; ++n) {
      const std::size_t start = n % 17, other = n % 5;
      const std::span<const T> x = std::span(a).subspan(start, n), y = std::span(b).subspan(other, n);
      ASSERT_EQ(in_bulk(x), one_by_one(x)) << fill.name << ", " << n << " from " << start;
      ASSERT_EQ(products_in_bulk(x, y), products_one_by_one(x, y)) << fill.name << ", " << n << " elements";
    }
  }
}

TYPED_TEST(ExactBulk, AgreesWithIntegers) {
  using T = TypeParam;
  for (const Fill& fill : fills_of<T>()) {
    const auto a = make<T>(fill, 3000, 5), b = make<T>(fill, 3000, 6);
    Integer sum = 0, dot = 0;
    bool finite = true;
    for (std::size_t i = 0; i < a.size() && finite; ++i) {
      finite = std::isfinite(a[i]) && std::isfinite(b[i]);
      if (!finite) break;
      sum += in_units(static_cast<double>(a[i]), unit);
      dot += in_units(static_cast<double>(a[i]), unit / 2) * in_units(static_cast<double>(b[i]), unit / 2);
    }
    if (!finite) continue;
    ExactSum bulk_sum, bulk_dot;
    bulk_sum.add(std::span<const T>(a));
    bulk_dot.add_products(std::span<const T>(a), std::span<const T>(b));
    EXPECT_TRUE(equal(bulk_sum, sum)) << fill.name;
    EXPECT_TRUE(equal(bulk_dot, dot)) << fill.name;
    EXPECT_FALSE(equal(bulk_sum, sum + 1) || equal(bulk_sum, sum - 1)) << fill.name;
  }
}

TYPED_TEST(ExactBulk, AnyOrderAnyShardsAnyThreads) {
  using T = TypeParam;
  std::mt19937_64 random(8);
  for (const Fill& fill : fills_of<T>()) {
    auto a = make<T>(fill, 30000, 7);
    const auto expected = in_bulk<T>(a);
    for (int round = 0; round < 3; ++round) {
      std::shuffle(a.begin(), a.end(), random);
      EXPECT_EQ(in_bulk<T>(a), expected) << fill.name;
      std::vector<ExactSum> shards(1 + random() % 6);
      std::vector<std::size_t> cuts = {0, a.size()};
      while (cuts.size() <= shards.size()) cuts.push_back(random() % a.size());
      std::sort(cuts.begin(), cuts.end());
      {
        std::vector<std::jthread> pool;
        for (std::size_t s = 0; s < shards.size(); ++s) {
          pool.emplace_back(
              [&, s] { shards[s].add(std::span<const T>(a).subspan(cuts[s], cuts[s + 1] - cuts[s])); });
        }
      }
      std::shuffle(shards.begin(), shards.end(), random);
      ExactSum whole;
      for (const ExactSum& shard : shards) whole.merge(shard);
      EXPECT_EQ(expansion(whole), expected) << fill.name << " in " << shards.size() << " shards";
    }
  }
}

TEST(ExactSum, ProductsBeyondTheRange) {
  const double tiny = std::numeric_limits<double>::denorm_min(), huge = std::numeric_limits<double>::max();
  ExactSum sum;
  sum.add_product(tiny, tiny);
  EXPECT_EQ(sum.round(), 0);
  EXPECT_FALSE(std::signbit(sum.round()));
  sum.add_product(0x1p-537, 0x1p-538);  // half of the smallest number: the 2^-2148 above decides
  EXPECT_EQ(sum.round(), tiny);
  sum.add_product(-tiny, tiny);
  EXPECT_EQ(sum.round(), 0);  // now a tie, to even
  sum.add_product(-tiny, tiny);
  EXPECT_EQ(sum.round(), 0);
  EXPECT_EQ(sum.round(DType::float32), 0);
  sum.add_product(huge, huge);
  EXPECT_EQ(sum.round(), inf);
  sum.add_product(-huge, huge);
  sum.add(1);
  EXPECT_EQ(sum.round(), 1);
  ExactSum negative;
  negative.add_product(-tiny, tiny);
  EXPECT_EQ(negative.round(), 0);
  EXPECT_TRUE(std::signbit(negative.round()));
}

TEST(ExactSum, ProductsOfSpecialValuesAsIeee) {
  const auto product = [](double a, double b) {
    ExactSum sum;
    sum.add_product(a, b);
    return sum.round();
  };
  EXPECT_TRUE(std::isnan(product(0, inf)));
  EXPECT_TRUE(std::isnan(product(std::nan(""), 0)));
  EXPECT_EQ(product(-2, inf), -inf);
  EXPECT_TRUE(std::signbit(product(-2, 0)));
  EXPECT_FALSE(std::signbit(product(-2, -0.0)));
}

TEST(ExactSum, MergesSpecialValuesAndEmptySums) {
  ExactSum empty, zero, sum;
  zero.add(-0.0);
  sum.merge(empty);
  EXPECT_FALSE(std::signbit(sum.round()));
  sum.merge(zero);
  EXPECT_TRUE(std::signbit(sum.round()));
  ExactSum positive, negative;
  positive.add(inf);
  negative.add(-inf);
  positive.merge(negative);
  EXPECT_TRUE(std::isnan(positive.round()));
  sum.add(3);
  sum.merge(sum);
  EXPECT_EQ(sum.round(), 6);
}

// A caller may flush subnormals, round up, or have flags set: the sum is the same, and its environment stays.
TEST(ExactSum, IsIndependentOfTheFloatEnvironment) {
  const auto x = make<float>(fills()[6], 5000, 9), y = make<float>(fills()[0], 5000, 9);
  const auto subnormal = in_bulk<float>(x), ordinary = in_bulk<float>(y);
  std::fesetround(FE_UPWARD);
  std::feraiseexcept(FE_INEXACT | FE_DIVBYZERO);
  ExactSum sum, other;
  sum.add(x);
  other.add(y);
  EXPECT_EQ(std::fegetround(), FE_UPWARD);
  EXPECT_NE(std::fetestexcept(FE_DIVBYZERO), 0);
  std::fesetenv(FE_DFL_ENV);
  EXPECT_EQ(expansion(sum), subnormal);
  EXPECT_EQ(expansion(other), ordinary);
#if defined(__x86_64__)
  const unsigned control = __builtin_ia32_stmxcsr();
  __builtin_ia32_ldmxcsr(control | 0x8040);  // flush to zero, denormals are zero
  sum.clear();
  sum.add(x);
  __builtin_ia32_ldmxcsr(control);
  EXPECT_EQ(expansion(sum), subnormal);
#endif
}

TEST(ExactSum, RefusesVectorsOfDifferentLengths) {
  ExactSum sum;
  const std::vector<float> a(3), b(4);
  EXPECT_THROW(sum.add_products(a, b), Error);
  const std::vector<double> c(40), d(41);
  EXPECT_THROW(sum.add_products(c, d), Error);
}

}  // namespace
}  // namespace assay::exact_sum_simd_test
