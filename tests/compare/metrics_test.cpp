#include "assay/compare/measure/measure.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <random>

#include "assay/dumps/record/dump.h"
#include "assay/golden/error.h"
#include "metrics_bits.h"

namespace assay::metrics_test {
namespace {

using nlohmann::json;

constexpr double nan = std::numeric_limits<double>::quiet_NaN();

json expected_metrics() {
  std::ifstream file(ASSAY_TEST_DATA "/metrics/expected.json");
  return json::parse(file);
}

double number(const json& j) {
  if (!j.is_string()) return j.get<double>();
  return j == "nan" ? nan : j == "inf" ? infinity : -infinity;
}

// The pair as make_metrics.py stored it.
struct Pair {
  Tensor actual, reference;
};
Pair read_pair(const std::string& name, const json& expected) {
  OpenOptions options;
  if (const auto hint = expected["hint"].get<std::string>(); !hint.empty())
    options.dtype_hint = parse_dtype(hint);
  const auto dump = open_dump(ASSAY_TEST_DATA "/metrics/" + name + ".npz", options);
  Pair pair;
  for (std::size_t i = 0; i < dump->records.size(); ++i) {
    (dump->records[i].id.module == "actual" ? pair.actual : pair.reference) = dump->read(i);
  }
  return pair;
}

void expect_close(double value, const json& expected, double relative, double absolute = 0);

void expect_side(const Side& side, const json& expected, double off) {
  EXPECT_EQ(side.nan, expected["nan"]);
  EXPECT_EQ(side.infinite, expected["inf"]);
  EXPECT_EQ(side.zero, expected["zero"]);
  EXPECT_EQ(side.subnormal, expected["subnormal"]);
  EXPECT_EQ(side.min, number(expected["min"]));
  EXPECT_EQ(side.max, number(expected["max"]));
  const double std = number(expected["std"]);
  expect_close(side.mean, expected["mean"], 1e-13, off * std);
  expect_close(side.std, expected["std"], off);
}

// Sums of n <= 140001 positive float64 terms, in lanes of 256 and compensated above them: some 2^-44 at most.
// Those of float32 sums of 16 terms: 2^-20 at most.
double sums_off(const Metrics& m) {
  const bool in_float32 = m.elements >= 256 && m.ulp_dtype != DType::float64;
  return in_float32 ? 0x1p-20 : 1e-13;
}

void expect_close(double value, const json& expected, double relative, double absolute) {
  const double target = number(expected);
  if (std::isinf(target)) {
    EXPECT_EQ(value, target);
  } else {
    EXPECT_NEAR(value, target, relative * std::abs(target) + absolute);
  }
}

class MetricsOfPair : public testing::TestWithParam<std::string> {};

TEST_P(MetricsOfPair, AreTheirDefinitions) {
  const json expected = expected_metrics()[GetParam()];
  const Pair pair = read_pair(GetParam(), expected);
  const Metrics m = measure(pair.actual, pair.reference, {});
  const double off = sums_off(m);
  EXPECT_EQ(m.elements, expected["elements"]);
  EXPECT_EQ(m.max_abs, number(expected["max_abs"]));
  EXPECT_EQ(m.max_abs_at, expected["max_abs_at"]);
  expect_close(m.max_rel, expected["max_rel"], 1e-15);
  EXPECT_EQ(m.max_rel_at, expected["max_rel_at"]);
  expect_close(m.mean_abs, expected["mean_abs"], off);
  expect_close(m.mean_rel, expected["mean_rel"], off);
  expect_close(m.rmse, expected["rmse"], off);
  expect_close(m.relative_l2, expected["relative_l2"], off);
  // What is taken from ||d||^2 may be nearly as much.
  expect_close(m.one_minus_cosine, expected["one_minus_cosine"], off,
               off * std::min(m.relative_l2 * m.relative_l2, 1.0));
  EXPECT_EQ(name(m.ulp_dtype), expected["ulp_dtype"].get<std::string>());
  EXPECT_EQ(m.max_ulp, expected["max_ulp"]);
  EXPECT_EQ(m.max_ulp_at, expected["max_ulp_at"]);
  json histogram = json::object();
  for (std::size_t k = 0; k < m.ulp_histogram.size(); ++k) {
    if (m.ulp_histogram[k] != 0) histogram[std::to_string(k)] = m.ulp_histogram[k];
  }
  EXPECT_EQ(histogram, expected["ulp_histogram"]);
  EXPECT_EQ(m.different_bits, expected["different_bits"]);
  EXPECT_EQ(m.different_bits_at, expected["different_bits_at"]);
  EXPECT_EQ(m.special_mismatch, expected["special_mismatch"]);
  EXPECT_EQ(m.special_mismatch_at, expected["special_mismatch_at"]);
  EXPECT_EQ(m.overflowed, expected["overflowed"]);
  EXPECT_EQ(m.above, expected["above"]);
  EXPECT_EQ(m.below, expected["below"]);
  expect_side(m.actual, expected["actual"], off);
  expect_side(m.reference, expected["reference"], off);
  // Nothing is allowed: whatever differs in value is over, but for infinities that the actual dtype forces.
  EXPECT_EQ(m.over, m.above + m.below + m.special_mismatch);
  EXPECT_EQ(m.worst_ratio, m.over == 0 ? 0 : infinity);
}

// A few roundings of the result are left: of roots, quotients and of what is taken from ||d||^2.
TEST_P(MetricsOfPair, AreExactWithExactSums) {
  const json expected = expected_metrics()[GetParam()];
  const Pair pair = read_pair(GetParam(), expected);
  if (GetParam().starts_with("float64_")) return;  // squares beyond float64 are summed otherwise
  const Metrics m = measure(pair.actual, pair.reference, {}, 3, true);
  constexpr double off = 0x1p-51;
  expect_close(m.mean_abs, expected["mean_abs"], off);
  expect_close(m.mean_rel, expected["mean_rel"], off);
  expect_close(m.rmse, expected["rmse"], off);
  expect_close(m.relative_l2, expected["relative_l2"], off);
  expect_close(m.one_minus_cosine, expected["one_minus_cosine"], off,
               off * std::min(m.relative_l2 * m.relative_l2, 1.0) * 4);
  expect_close(m.actual.mean, expected["actual"]["mean"], off);  // of itself, whatever cancels
  expect_close(m.reference.mean, expected["reference"]["mean"], off);
  expect_close(m.actual.std, expected["actual"]["std"], off);
  expect_close(m.reference.std, expected["reference"]["std"], off);
}

std::vector<std::string> pair_names() {
  std::vector<std::string> names;
  const json expected = expected_metrics();
  for (const auto& [name, value] : expected.items()) names.push_back(name);
  return names;
}

INSTANTIATE_TEST_SUITE_P(Numpy, MetricsOfPair, testing::ValuesIn(pair_names()),
                         [](const auto& test) { return test.param; });

TEST(Measure, GivesTheSameBitsForAnyNumberOfThreads) {
  std::mt19937_64 random(1);
  std::vector<double> a(300'007), r(a.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    r[i] = std::ldexp(static_cast<double>(random() >> 11), static_cast<int>(random() % 40) - 70);
    a[i] = r[i] * (1 + std::ldexp(static_cast<double>(random() % 4096), -20));
    if (random() % 10'000 == 0) a[i] = nan;
  }
  const auto shape = Shape{static_cast<std::int64_t>(a.size())};
  const std::vector<double> bound(a.size(), 1e-3);
  for (const auto& [left, right] :
       {std::pair(DType::float32, DType::float32), std::pair(DType::bfloat16, DType::float32),
        std::pair(DType::float64, DType::float64), std::pair(DType::float16, DType::bfloat16)}) {
    const Tensor actual = Tensor::from_values(left, shape, a),
                 reference = Tensor::from_values(right, shape, r);
    const Allowed allowed{1e-4, 1e-3, bound};
    const auto one = bits_of(measure(actual, reference, allowed, 1));
    for (const int threads : {2, 3, 7}) {
      EXPECT_EQ(bits_of(measure(actual, reference, allowed, threads)), one) << name(left) << ' ' << threads;
    }
  }
}

// Against the plainest loop, with a tolerance and a bound per element, and ends of blocks and chunks at every
// residue.
TEST(Measure, JudgesEachElementByItsOwnLimit) {
  std::mt19937_64 random(2);
  for (const std::size_t size : {1u, 7u, 8u, 2047u, 2049u, 65535u, 65536u, 65537u, 70'003u}) {
    std::vector<double> a(size), r(size), bound(size);
    std::int64_t over = 0, worst_at = -1;
    double worst = -1;
    for (std::size_t i = 0; i < size; ++i) {
      r[i] = static_cast<double>(random() % 2001) - 1000;
      a[i] = r[i] + static_cast<double>(random() % 5) - 2;
      bound[i] = static_cast<double>(random() % 3) / 4;
      const double limit = 0.25 + 0x1p-10 * std::abs(r[i]) + bound[i], error = std::abs(a[i] - r[i]);
      over += error <= limit ? 0 : 1;
      if (error / limit > worst) {
        worst = error / limit;
        worst_at = static_cast<std::int64_t>(i);
      }
    }
    const auto shape = Shape{static_cast<std::int64_t>(size)};
    const Metrics m = measure(Tensor::from_values(DType::float32, shape, a),
                              Tensor::from_values(DType::float32, shape, r), {0.25, 0x1p-10, bound});
    EXPECT_EQ(m.over, over) << size;
    EXPECT_EQ(m.worst_ratio, worst) << size;
    EXPECT_EQ(m.worst_at, worst_at) << size;
  }
}

Tensor float32(std::vector<double> values) {
  return Tensor::from_values(DType::float32, {static_cast<std::int64_t>(values.size())}, values);
}

TEST(Measure, ALimitThatIsNoNumberAllowsNothing) {
  const std::vector<double> bound = {nan, nan, infinity, 0};
  const Metrics m = measure(float32({1, 2, 3, 4}), float32({2, 2, 1000, 4}), {0, 0, bound});
  EXPECT_EQ(m.over, 2);
  EXPECT_EQ(m.worst_ratio, infinity);
  EXPECT_EQ(m.worst_at, 0);
}

TEST(Measure, EqualNaNNeedsNoLimit) {
  const std::vector<double> bound = {nan, nan, 0};
  const Metrics m = measure(float32({nan, infinity, 1}), float32({nan, infinity, 1}), {0, 0, bound});
  EXPECT_EQ(m.over, 0);
  EXPECT_EQ(m.worst_ratio, 0);
}

TEST(Measure, CountsUlpsOfPaddedFormats) {
  // 1 and its neighbours: 2^-10 apart in tfloat32, 2^-11 in hfloat32.
  const std::vector<double> ones = {1, -1}, next = {1 + 0x1p-10, -1 - 0x1p-10};
  const auto ulp = [&](DType actual, DType reference) {
    return measure(Tensor::from_values(actual, {2}, next), Tensor::from_values(reference, {2}, ones), {})
        .max_ulp;
  };
  EXPECT_EQ(ulp(DType::tfloat32, DType::tfloat32), 1u);
  EXPECT_EQ(ulp(DType::hfloat32, DType::hfloat32), 2u);
  EXPECT_EQ(ulp(DType::hfloat32, DType::tfloat32), 1u);
  EXPECT_EQ(ulp(DType::float32, DType::tfloat32), 1u);
  EXPECT_EQ(ulp(DType::float32, DType::float32), 8192u);
}

TEST(Measure, RefusesOtherShapesAndKinds) {
  EXPECT_THROW(measure(float32({1, 2}), float32({1, 2}).reshaped({2, 1}), {}), Error);
  EXPECT_THROW(measure(float32({1}), Tensor(DType::int32, {1}), {}), Error);
}

TEST(Coarser, IsTheOneWithFewerSignificandBits) {
  EXPECT_EQ(coarser(DType::bfloat16, DType::float16), DType::bfloat16);
  EXPECT_EQ(coarser(DType::float64, DType::float32), DType::float32);
  EXPECT_EQ(coarser(DType::float32, DType::tfloat32), DType::tfloat32);
  EXPECT_EQ(coarser(DType::float16, DType::hfloat32), DType::float16);
}

// As a file that is damaged in two places: which thread comes to them first must not matter.
TEST(Metrics, TheCosineOfSidesOfVeryDifferentSizeIsOne) {
  for (const DType dtype : {DType::float32, DType::float64}) {
    std::vector<double> a(5000), r(a.size());
    long double ar = 0, aa = 0, rr = 0;
    for (std::size_t i = 0; i < a.size(); ++i) {
      r[i] = std::sin(static_cast<double>(i));
      a[i] = 1e15 * (r[i] + std::cos(static_cast<double>(3 * i)));
      ar += static_cast<long double>(a[i]) * r[i];
      aa += static_cast<long double>(a[i]) * a[i];
      rr += static_cast<long double>(r[i]) * r[i];
    }
    const Tensor large = Tensor::from_values(dtype, {5000}, a), small = Tensor::from_values(dtype, {5000}, r);
    const auto expected = static_cast<double>(1 - ar / std::sqrt(aa * rr));
    EXPECT_NEAR(measure(large, small, {}).one_minus_cosine, expected, 1e-6) << name(dtype);
    EXPECT_NEAR(measure(small, large, {}).one_minus_cosine, expected, 1e-6) << name(dtype);
  }
}

TEST(Metrics, ASideBeyondTheRangeOfSquaresLeavesTheOtherItsSpread) {
  const Tensor a = Tensor::from_values(DType::float64, {4}, std::vector<double>{1, -1, 2, -2}),
               r = Tensor::from_values(DType::float64, {4}, std::vector<double>{1, -1, 1e200, -2});
  const Metrics m = measure(a, r, {}), swapped = measure(r, a, {});
  EXPECT_NEAR(m.actual.std, std::sqrt(2.5), 1e-15);
  EXPECT_NEAR(m.one_minus_cosine, 1 - 2 / std::sqrt(10.0), 1e-15);
  EXPECT_NEAR(swapped.relative_l2 / 1e200, 1 / std::sqrt(10.0), 1e-15);
}

TEST(Metrics, AWindowThatCannotBeReadIsAnErrorOnEveryThread) {
  const std::int64_t size = std::int64_t{1} << 21;
  const Tensor good(DType::float32, {size});
  const TensorSource damaged(DType::float32, {size}, [&](std::int64_t begin, std::int64_t count) {
    if (begin >= size / 2) throw Error("damaged at {}", begin);
    return Tensor(DType::float32, {count});
  });
  for (const int threads : {1, 2, 7}) {
    EXPECT_THAT([&] { measure(good, damaged, {}, threads); },
                testing::ThrowsMessage<Error>("damaged at " + std::to_string(size / 2)));
  }
}

}  // namespace
}  // namespace assay::metrics_test
