// The pass of measure() over dtypes that the fused kernels do not take. fused_test.cpp has it against plain
// loops for floats, metrics_test.cpp against numpy.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "assay/compare/measure/block_kernels.h"
#include "assay/compare/measure/measure.h"
#include "assay/compare/measure/ordinals.h"
#include "instruction_sets.h"
#include "metrics_bits.h"

namespace assay::block_test {
namespace {

constexpr double nan = std::numeric_limits<double>::quiet_NaN();

struct Pair {
  DType actual, reference;
};

// Of any bits, NaN and infinities among them; most of the other side are near.
std::pair<Tensor, Tensor> random_pair(Pair dtypes, std::size_t size, std::mt19937_64& random) {
  const std::size_t width = size_of(dtypes.actual), other_width = size_of(dtypes.reference);
  std::vector<std::byte> actual(size * width), reference(size * other_width);
  for (std::size_t i = 0; i < size; ++i) {
    const std::uint64_t code = random();
    std::memcpy(&reference[i * other_width], &code, other_width);
    std::uint64_t near = code;
    if (dtypes.actual != dtypes.reference) near = encode(dtypes.actual, decode(dtypes.reference, code));
    if (random() % 4 == 0) near ^= random() % 4;
    if (random() % 32 == 0) near = random();
    std::memcpy(&actual[i * width], &near, width);
  }
  const Shape shape = {static_cast<std::int64_t>(size)};
  return {Tensor(dtypes.actual, shape, std::move(actual)),
          Tensor(dtypes.reference, shape, std::move(reference))};
}

TEST(Block, GivesTheSameBitsOnEveryInstructionSetAndForAnyNumberOfThreads) {
  using enum DType;
  std::mt19937_64 random(11);
  for (const Pair& dtypes : {Pair{float64, float64}, Pair{float64, float32}, Pair{float16, bfloat16},
                             Pair{float8_e4m3fn, float8_e4m3fn}, Pair{float8_e5m2, float32},
                             Pair{tfloat32, tfloat32}, Pair{int64, int64}, Pair{uint64, int64},
                             Pair{int32, int32}, Pair{uint8, int16}, Pair{boolean, boolean}}) {
    const auto [actual, reference] = random_pair(dtypes, 300'003, random);
    const Metrics one = measure(actual, reference, {1e-3, 1e-3, {}}, 1);
    SCOPED_TRACE(testing::Message() << name(dtypes.actual) << " against " << name(dtypes.reference));
    for (const int threads : {2, 5})
      expect_same_bits(measure(actual, reference, {1e-3, 1e-3, {}}, threads), one);
    for_each_instruction_set([&, a = actual, r = reference](const char* set) {
      SCOPED_TRACE(set);
      expect_same_bits(measure(a, r, {1e-3, 1e-3, {}}, 2), one);
    });
  }
}

// Counts, largest errors and where they are, in arithmetic that holds them all.
Metrics plainly(const Tensor& actual, const Tensor& reference, const Allowed& allowed) {
  Metrics m;
  m.ulp_histogram.resize(65);
  for (std::int64_t i = 0; i < actual.size(); ++i) {
    const auto at = static_cast<std::size_t>(i);
    const __int128 apart =
        integer_at(actual.dtype(), actual.bytes(), at) - integer_at(reference.dtype(), reference.bytes(), at);
    const __int128 size = apart < 0 ? -apart : apart;
    const auto ulp =
        static_cast<std::uint64_t>(std::min<__int128>(size, std::numeric_limits<std::uint64_t>::max()));
    const auto error = static_cast<double>(size);
    if (apart != 0 && m.different_bits++ == 0) m.different_bits_at = i;
    m.above += apart > 0, m.below += apart < 0;
    m.over += error <= allowed.atol ? 0 : 1;
    ++m.ulp_histogram[static_cast<std::size_t>(std::bit_width(ulp))];
    if (i == 0 || ulp > m.max_ulp) m.max_ulp = ulp, m.max_ulp_at = i;
    if (i == 0 || error > m.max_abs) m.max_abs = error, m.max_abs_at = i;
  }
  while (!m.ulp_histogram.empty() && m.ulp_histogram.back() == 0) m.ulp_histogram.pop_back();
  return m;
}

TEST(Block, SubtractsIntegersWithoutLoss) {
  std::mt19937_64 random(12);
  const Allowed allowed = {2, 0, {}};
  for (const DType left : all_dtypes) {
    for (const DType right : all_dtypes) {
      if (is_float(left) || is_float(right)) continue;
      SCOPED_TRACE(testing::Message() << name(left) << " against " << name(right));
      const auto [actual, reference] = random_pair({left, right}, 1 + random() % 3000, random);
      const Metrics m = measure(actual, reference, allowed), expected = plainly(actual, reference, allowed);
      for (const auto field : {&Metrics::different_bits, &Metrics::different_bits_at, &Metrics::above,
                               &Metrics::below, &Metrics::over, &Metrics::max_ulp_at, &Metrics::max_abs_at})
        EXPECT_EQ(m.*field, expected.*field);
      EXPECT_EQ(m.max_ulp, expected.max_ulp);
      EXPECT_EQ(m.max_abs, expected.max_abs);
      EXPECT_EQ(m.ulp_histogram, expected.ulp_histogram);
    }
  }
}

TEST(Block, DistancesAreThoseOfTheCodesThatValuesRoundTo) {
  constexpr std::size_t size = 4096;
  alignas(64) static double actual[size], reference[size];
  alignas(64) static std::uint64_t ulps[size];
  std::mt19937_64 random(13);
  for (const DType unit : all_dtypes) {
    if (!is_float(unit)) continue;
    // Halfway between two neighbours, about the smallest and the largest number, and anything.
    for (std::size_t i = 0; i < size; ++i) {
      const double tie = 1 + std::ldexp(static_cast<double>(random() % 64), -format_of(unit).precision());
      const double value = i % 4 == 0   ? tie
                           : i % 4 == 1 ? min_subnormal(unit) * static_cast<double>(random() % 64) / 4
                           : i % 4 == 2 ? max_finite(unit) / 64 * static_cast<double>(random() % 64)
                                        : std::bit_cast<double>(random());
      const double other = i % 4 == 2 ? std::min(max_finite(unit) * 1.0625, 0x1p1023) : value / 3;
      actual[i] = std::isfinite(value) ? value : 0;
      reference[i] = std::isfinite(other) && i % 8 < 4 ? -other : actual[i] / 2;
    }
    for_each_instruction_set([&](const char* set) {
      SCOPED_TRACE(testing::Message() << name(unit) << ", " << set);
      const std::uint64_t largest = subtract_ordinals(unit, actual, reference, ulps);
      EXPECT_EQ(largest, *std::ranges::max_element(ulps));
      for (std::size_t i = 0; i < size; ++i) {
        const __int128 apart = static_cast<__int128>(ordinal(unit, actual[i])) - ordinal(unit, reference[i]);
        ASSERT_EQ(ulps[i], static_cast<std::uint64_t>(apart < 0 ? -apart : apart))
            << actual[i] << " against " << reference[i];
      }
    });
  }
}

TEST(Block, ElementsThatAreNotFiniteAreAskedForNoBound) {
  const Tensor both({4}, std::vector<double>{nan, 1, infinity, 2});
  const double bound[] = {nan, nan, -1, 0};
  const Metrics m = measure(both, both, {0, 0, bound});
  EXPECT_EQ(m.over, 1);
  EXPECT_EQ(m.worst_at, 1);
  EXPECT_EQ(m.max_abs_at, 1);
  EXPECT_EQ(m.actual.mean, 1.5);
  EXPECT_EQ(m.actual.std, 0.5);
}

TEST(Block, KeepsTheFirstOfTheLargest) {
  std::vector<double> actual(5000, 1.0), reference = actual;
  for (const std::size_t i : {700, 701, 2500, 4999}) actual[i] = 1.5;
  const Metrics m = measure(Tensor({5000}, actual), Tensor({5000}, reference), {0.25, 0, {}});
  for (const auto field : {&Metrics::max_abs_at, &Metrics::max_rel_at, &Metrics::max_ulp_at,
                           &Metrics::worst_at, &Metrics::different_bits_at})
    EXPECT_EQ(m.*field, 700);
  EXPECT_EQ(m.over, 4);
}

}  // namespace
}  // namespace assay::block_test
