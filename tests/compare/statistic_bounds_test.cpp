#include "assay/compare/pairs/statistic_bounds.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "assay/dumps/record/statistics.h"
#include "faulty_pair.h"
#include "memory_dump.h"

namespace assay::statistic_bounds_test {
namespace {

// As a device may: one accumulator, from the first element to the last; the results in the tensor's dtype.
KnownStatistics recorded(const Tensor& t, DType accumulator) {
  double sum = 0, squares = 0;
  const Values values = t.values();
  for (const double v : values) {
    sum = round_to(accumulator, sum + v);
    squares = round_to(accumulator, squares + round_to(accumulator, v * v));
  }
  Statistics s;
  s.min = *std::ranges::min_element(values);
  s.max = *std::ranges::max_element(values);
  s.mean = round_to(t.dtype(), round_to(accumulator, sum / static_cast<double>(values.size())));
  s.l2 = round_to(t.dtype(), round_to(accumulator, std::sqrt(squares)));
  return {s, t.dtype(), false};
}
KnownStatistics recorded(const Tensor& t) {
  return recorded(t, DType::float32);
}
KnownStatistics recorded_narrow(const Tensor& t) {
  return recorded(t, t.dtype());
}

KnownStatistics computed(const Tensor& t) {
  KnownStatistics known{statistics_of(t), t.dtype(), true};
  known.values.l2 = l2_norm(t);
  return known;
}

double worst(const std::vector<ComparedStatistic>& compared) {
  double largest = 0;
  for (const ComparedStatistic& s : compared) largest = std::max(largest, ratio(s));
  return largest;
}

double worst(const Tensor& actual, const Tensor& reference, double t) {
  constexpr KnownStatistics (*known[])(const Tensor&) = {recorded, recorded_narrow, computed};
  double largest = 0;
  for (const auto a : known) {
    for (const auto g : known)
      largest = std::max(largest, worst(compare_statistics(a(actual), g(reference), actual.size(), t, t)));
  }
  return largest;
}

TEST(StatisticBounds, HoldWhereEveryElementPasses) {
  Random random(1);
  for (int trial = 0; trial < 300; ++trial) {
    const DType dtype =
        std::array{DType::float32, DType::bfloat16, DType::float16}[static_cast<std::size_t>(trial % 3)];
    const double t = std::array{0.0, 1e-4, 1e-2, 0.5}[static_cast<std::size_t>(random.below(4))];
    const double scale = std::exp2(static_cast<double>(random.below(16) - 8)),
                 shift = random.normal() * (trial % 5 == 0 ? 4 : 0);
    Values g = random.normals(1 + random.below(3000), scale);
    for (double& v : g) v = round_to(dtype, v + shift * scale);
    // Every element at its limit: all one way, all outwards, or at random.
    Values a = g;
    for (double& v : a) {
      const double sign = trial % 4 == 0 ? 1 : trial % 4 == 1 ? std::copysign(1, v) : random.uniform() - 0.5;
      v += std::copysign(t * (1 + std::abs(v)), sign);
    }
    // Nothing is rounded on the actual side: float64.
    const Tensor actual = t == 0 ? tensor(dtype, a) : tensor(DType::float64, a);
    EXPECT_LE(worst(actual, tensor(dtype, g), t), 1) << "trial " << trial;
  }
}

// What passes by a little more than allowed in one statistic is found by it.
TEST(StatisticBounds, AreReached) {
  const Values g = Random(2).normals(1000);
  const Tensor reference = tensor(DType::float64, g);
  const double t = 1e-3;
  const auto outside = [&](double part) {
    Values outwards = g, shifted = g;
    for (double& v : outwards) v += part * std::copysign(t * (1 + std::abs(v)), v);
    for (double& v : shifted) v += part * t * (1 + std::abs(v));
    std::vector<std::string> names;
    for (const Values& a : {outwards, shifted}) {
      for (const ComparedStatistic& s :
           compare_statistics(computed(tensor(DType::float64, a)), computed(reference), 1000, t, t)) {
        if (!(ratio(s) <= 1)) names.push_back(s.name);
      }
    }
    return names;
  };
  EXPECT_EQ(outside(0.999), std::vector<std::string>());
  // The norm reaches its bound only where all elements are equal in size.
  EXPECT_EQ(outside(1.001), (std::vector<std::string>{"max", "min", "abs sum", "max", "min", "sum"}));
  const Tensor ones = tensor(DType::float64, Values(1000, 1)),
               more = tensor(DType::float64, Values(1000, 1 + 2.002 * t));
  EXPECT_GT(ratio(compare_statistics(computed(more), computed(ones), 1000, t, t).back()), 1);
}

TEST(StatisticBounds, GrowWithTheRoundingOfTheRecorder) {
  Statistics exact, off;
  exact.l2 = 100;
  off.l2 = 100.25;
  const auto compare = [&](DType dtype, double rounding) {
    off.rounding = rounding;
    return worst(compare_statistics({off, dtype, false}, {exact, dtype, false}, 100, 0, 0));
  };
  EXPECT_GT(compare(DType::float32, 0), 1);
  EXPECT_LE(compare(DType::bfloat16, 0), 1);
  EXPECT_LE(compare(DType::float32, 3e-3), 1);
}

// Devices may flush a result below the smallest normal number to zero.
TEST(StatisticBounds, AMeanMayHaveBeenFlushedToZero) {
  for (const DType dtype : {DType::float32, DType::bfloat16}) {
    const auto flushed = [&](double value) {
      Statistics recorded, exact;
      recorded.max = recorded.min = exact.max = exact.min = exact.mean = value;
      recorded.mean = 0;
      return worst(compare_statistics({recorded, dtype, false}, {exact, dtype, true}, 4, 0, 0));
    };
    EXPECT_LE(flushed(0x1p-127), 1) << name(dtype);
    EXPECT_GT(flushed(0x1p-125), 1) << name(dtype);
  }
}

// No bound holds for a sum of so many terms, unless it was exact.
TEST(StatisticBounds, EndWithTheDigitsOfTheSum) {
  Statistics a, g;
  a.max = g.max = 1;
  a.min = g.min = 0;
  a.mean = a.l2 = 1;
  g.mean = g.l2 = 2;
  const auto bounded = [&](DType dtype, std::int64_t n) {
    std::vector<std::string> found;
    for (const ComparedStatistic& s : compare_statistics({a, dtype, false}, {g, dtype, false}, n, 0, 0)) {
      if (std::isfinite(s.allowed)) found.push_back(s.name);
    }
    return found;
  };
  const std::vector<std::string> all = {"max", "min", "mean", "l2"}, exact = {"max", "min"};
  EXPECT_EQ(bounded(DType::float32, 1 << 22), all);
  EXPECT_EQ(bounded(DType::float32, 1 << 24), exact);
  EXPECT_EQ(bounded(DType::bfloat16, 100), all);
  EXPECT_EQ(bounded(DType::bfloat16, 256), exact);
}

// As msprobe recorded the input of a norm in bfloat16, a slice of [12, 2, 14]: its norm is 3 % off, its mean
// by more than it is.
TEST(StatisticBounds, AllowWhatRecordersDoInBfloat16) {
  Statistics recorded, exact;
  recorded.max = exact.max = 3;
  recorded.min = exact.min = -3;
  recorded.mean = -0.000232696533;
  exact.mean = -0.000444321405;
  recorded.l2 = 17;
  exact.l2 = 17.5708543;
  EXPECT_EQ(worst(compare_statistics({recorded, DType::bfloat16, false}, {exact, DType::bfloat16, true}, 336,
                                     0, 0)),
            0);
}

TEST(StatisticBounds, InfinitiesThatADtypeForcesPass) {
  Statistics a, g;
  a.max = std::numeric_limits<double>::infinity();
  g.max = 7e4;
  const auto compare = [&](DType actual) {
    return worst(compare_statistics({a, actual, false}, {g, DType::float32, false}, 10, 1e-4, 1e-4));
  };
  EXPECT_EQ(compare(DType::float16), 0);
  EXPECT_GT(compare(DType::bfloat16), 1);
}

TEST(StatisticBounds, OfSumsWithoutAToleranceAreZero) {
  const Tensor x = float32(Random(3).normals(1000));
  Values near = x.values();
  near[7] += 0x1p-40;
  const auto outside = compare_statistics(computed(tensor(DType::float64, near)), computed(x), 1000, 0, 0);
  EXPECT_GT(worst(outside), 1);
  EXPECT_EQ(worst(compare_statistics(computed(x), computed(x), 1000, 0, 0)), 0);
}

}  // namespace
}  // namespace assay::statistic_bounds_test
