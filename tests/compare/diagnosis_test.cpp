#include "assay/compare/causes/values/diagnosis.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "faulty_pair.h"

namespace assay::diagnosis_test {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

void expect_first(const FaultyPair& pair, const std::string& text) {
  const auto found = pair.diagnose();
  EXPECT_THAT(first_of(found), StartsWith(text)) << name(pair.dtype) << ' ' << to_string(pair.shape);
  for (const Diagnosis& d : found) EXPECT_LE(d.residual, 1) << sentence(d);
}

TEST(Diagnosis, FactorsAreNamed) {
  const std::pair<double, std::string> factors[] = {
      {2, "actual = 2 x reference (2 = tp)"},
      {0.25, "actual = 0.25 x reference (0.25 = 1/dp"},
      {8, "actual = 8 x reference (8 = micro-batches or tp x dp)"},
      {0.125, "actual = 0.125 x reference (0.125 = 1/micro-batches"},
      {1.0 / 6, "actual = 0.1666667 x reference (0.1666667 = 1/(tp x cp))"},
      {0.75, "actual = 0.75 x reference (0.75 = cp/dp)"},
      {-4, "actual = -4 x reference (-4 = -dp"},
      {1 / std::sqrt(3.0), "actual = 0.5773503 x reference (0.5773503 = 1/sqrt(cp))"},
      {0x1p-16, "actual = 1.525879e-05 x reference (1.525879e-05 = 2^-16)"},
      {16, "actual = 16 x reference"},
  };
  for (const DType d : training_dtypes) {
    for (const Shape& shape : {Shape{512}, Shape{48, 40}, Shape{2, 5, 7, 8}}) {
      for (const auto& [k, text] : factors) {
        Random random(1);
        const Values r = random.normals(element_count(shape), std::abs(k) < 1e-3 ? 100 : 1);
        Values a = r;
        for (double& x : a) x *= k;
        FaultyPair pair(d, shape, r, a);
        if (std::abs(k) < 1e-3) pair.context.allowed.atol *= k;
        if (d == DType::float16 && std::abs(k) < 1e-3) continue;  // half of it is subnormal
        expect_first(pair.noise(noise_of(d)), "factor: " + text);
      }
    }
  }
}

TEST(Diagnosis, OtherFactorsAreNumbersAndMinusOneIsASign) {
  Random random(2);
  const Values r = random.normals(3000);
  Values a = r;
  for (double& x : a) x *= 1.2345;
  expect_first(FaultyPair(DType::float32, {30, 100}, r, a).noise(1e-7),
               "factor: actual = 1.2345 x reference");
  for (std::size_t i = 0; i < r.size(); ++i) a[i] = -r[i];
  for (const DType d : training_dtypes)
    expect_first(FaultyPair(d, {30, 100}, r, a).noise(noise_of(d)), "sign: actual = -reference");
}

TEST(Diagnosis, OfOneNumberOnlyANamedFactorIsSaid) {
  const auto first = [](const Shape& shape, double a, double r) {
    const auto n = static_cast<std::size_t>(element_count(shape));
    return first_of(FaultyPair(DType::float32, shape, Values(n, r), Values(n, a)).diagnose());
  };
  EXPECT_EQ(first({}, 4.642000001, 2.321),
            "factor: actual = 2 x reference (2 = tp) (of one number: 16 bits of evidence)");
  EXPECT_EQ(first({500}, 0.0876543, 0.7012344),
            "factor: actual = 0.125 x reference (0.125 = 1/micro-batches or 1/(tp x dp)) (of one number: 16 "
            "bits of evidence)");
  // A loss that was computed in float32, and is kept in float64.
  FaultyPair loss(DType::float64, {}, {7.827509666522343}, {3.913754706025123});
  loss.context.allowed = allowed_for(DType::float32);
  EXPECT_EQ(first_of(loss.diagnose()),
            "factor: actual = 0.5 x reference (0.5 = 1/tp) (of one number: 16 bits of evidence)");
  EXPECT_EQ(first({}, 4.65, 2.321), "nothing");
  EXPECT_EQ(first({}, 4, 2), "nothing");
  EXPECT_EQ(first({500}, 1.7, 1), "nothing");
  EXPECT_EQ(first({}, -2.5, 2.5), "nothing");
  EXPECT_EQ(first({3}, -2.5, 2.5), "nothing");
}

TEST(Diagnosis, RowsWithFactorsOfTheirOwn) {
  for (const DType d : training_dtypes) {
    Random random(3);
    const Values r = random.normals(64 * 96);
    Values a = r, b = r, c = r, e = r;
    for (std::size_t i = 0; i < r.size(); ++i) {
      a[i] *= 1.5 + static_cast<double>(i / 96) / 64;  // each row
      b[i] *= 0.5 + static_cast<double>(i % 96) / 16;  // each column
      c[i] *= i / 96 == 7 ? 2 : 1;
      e[i] *= i < 32 * 96 ? 1.25 : 1.5;  // each rank by the norm of its own piece
    }
    expect_first(FaultyPair(d, {64, 96}, r, a).noise(noise_of(d)),
                 "row_factors: every row is a multiple of the reference's: all 64 by");
    expect_first(FaultyPair(d, {64, 96}, r, b).noise(noise_of(d)),
                 "row_factors: every column is a multiple of the reference's: ");
    expect_first(
        FaultyPair(d, {64, 96}, r, c).noise(noise_of(d)),
        "row_factors: every row is a multiple of the reference's: [7] times 2 = tp, the others are right");
    expect_first(FaultyPair(d, {8, 8, 96}, r, c).noise(noise_of(d)), "row_factors: every row is a multiple");
    expect_first(
        FaultyPair(d, {64, 96}, r, e).noise(noise_of(d)),
        "row_factors: every rank's piece of dim 0 (2 = tp) is a multiple of the reference's: [0] times");
  }
}

// The weights of a router's chosen experts, divided by their sum and scaled, or scaled alone.
TEST(Diagnosis, RowsThatAreNotDividedByTheirSums) {
  constexpr std::size_t tokens = 96, chosen = 8;
  for (const DType d : {DType::float32, DType::float64}) {
    for (const double scale : {1.0, 2.5}) {
      Random random(3);
      Values probabilities(tokens * chosen), reference(tokens * chosen);
      for (std::size_t token = 0; token < tokens; ++token) {
        double sum = 0;
        for (std::size_t k = 0; k < chosen; ++k)
          sum += probabilities[token * chosen + k] = (0.1 + random.uniform()) / 12;
        for (std::size_t k = 0; k < chosen; ++k)
          reference[token * chosen + k] = scale * probabilities[token * chosen + k] / sum;
      }
      Values scaled = probabilities;
      for (double& p : scaled) p *= scale;
      const FaultyPair pair(d, {tokens, chosen}, reference, scaled);
      expect_first(pair,
                   "not_normalized: every row is the reference's before it is divided by its sum: rows of "
                   "the reference sum to " +
                       fmt::format("{:g}", scale));
      // Rows that have been scaled by something else were not normalized before.
      Values other = reference;
      for (std::size_t i = 0; i < other.size(); ++i) other[i] *= 1 + static_cast<double>(i % 7) / 3;
      Values twice = other;
      for (std::size_t i = 0; i < other.size(); ++i) twice[i] *= 1.5 + static_cast<double>(i / chosen) / 64;
      expect_first(FaultyPair(d, {tokens, chosen}, other, twice), "row_factors: every row is a multiple");
    }
  }
}

TEST(Diagnosis, Zeros) {
  Random random(4);
  Values r = random.normals(64 * 48);
  for (double& x : r) x += std::copysign(0.1, x);  // none that could be zero within tolerance
  Values part = r;
  for (std::size_t i = 48 * 16; i < 48 * 32; ++i) part[i] = 0;
  for (const DType d : training_dtypes) {
    expect_first(FaultyPair(d, {64, 48}, r, Values(r.size(), 0)), "zeros: every element is zero");
    FaultyPair pair(d, {64, 48}, r, part);
    expect_first(pair.noise(noise_of(d)),
                 "zeros: 768 of 3072 elements are outside, all of them exactly zero");
    EXPECT_EQ(pair.pattern(), "rows 16..31 (= shard 1 of 4 by dp): 768 of 768 wrong there, none elsewhere");
  }
  expect_first(FaultyPair(DType::float32, {}, {2.5}, {0}), "zeros: every element is zero");
}

TEST(Diagnosis, FlushedSubnormals) {
  Random random(5);
  Values r(2000), a(2000);
  for (std::size_t i = 0; i < r.size(); ++i) {
    r[i] = std::ldexp(random.uniform() + 1, static_cast<int>(-134 + random.below(12)));
    a[i] = r[i] < 0x1p-126 ? 0 : r[i];
  }
  FaultyPair pair(DType::float32, {2000}, r, a);
  pair.context.allowed = {0, 1e-6, {}};
  expect_first(pair, "flushed: ");
  EXPECT_THAT(first_of(pair.diagnose()), HasSubstr("below 1.18e-38, float32's smallest normal number"));
  for (std::size_t i = 0; i < r.size(); ++i) {
    r[i] = std::ldexp(r[i], 112);
    a[i] = r[i] < 0x1p-14 ? 0 : r[i];
  }
  FaultyPair half(DType::float32, {2000}, r, a);
  half.context.allowed = {0, 1e-6, {}};
  EXPECT_THAT(first_of(half.diagnose()), HasSubstr("below 6.1e-05, float16's smallest normal number"));
}

TEST(Diagnosis, LowerPrecisionThanDeclared) {
  struct Case {
    DType dtype;
    int exponents;  // the range of the values
    std::string name;
  };
  const Case cases[] = {
      {DType::bfloat16, 8, "bfloat16"},           {DType::hfloat32, 8, "hfloat32"},
      {DType::tfloat32, 60, "tfloat32"},          {DType::tfloat32, 8, "float16 or tfloat32"},
      {DType::float16, 8, "float16 or tfloat32"}, {DType::float16, 20, "float16"},
      {DType::float8_e4m3fn, 4, "float8_e4m3fn"}, {DType::float8_e5m2, 8, "float8_e5m2"}};
  for (const Case& c : cases) {
    for (const auto& [rounding, text] : {std::pair(Rounding::nearest_even, "rounded to nearest even"),
                                         std::pair(Rounding::toward_zero, "truncated")}) {
      Random random(6);
      Values clean(2000);
      for (double& x : clean)
        x = std::ldexp(random.uniform() + 1, 2 - static_cast<int>(random.below(c.exponents)));
      FaultyPair pair(DType::float32, {40, 50}, clean, clean);
      pair.context.allowed.atol = 0;
      pair.noise(1e-7);
      for (double& a : pair.actual) a = round_to(c.dtype, a, rounding);
      EXPECT_THAT(first_of(pair.diagnose()),
                  StartsWith("precision: float32 in name, but every element is a " + c.name +
                             " number: the reference " + text));
    }
  }
}

TEST(Diagnosis, LowerPrecisionWithSubnormalsFlushed) {
  Random random(7);
  Values r(3000), a(3000);
  for (std::size_t i = 0; i < r.size(); ++i) {
    r[i] = std::ldexp(random.uniform() + 1, static_cast<int>(-22 + random.below(16)));
    a[i] = round_to(DType::float16, r[i]);
    if (a[i] < 0x1p-14) a[i] = 0;
  }
  FaultyPair pair(DType::float32, {3000}, r, a);
  pair.context.allowed = {0, 1e-6, {}};
  expect_first(pair,
               "precision: float32 in name, but every element is a float16 number: the reference rounded to "
               "nearest even to it, subnormals flushed to zero,");
}

TEST(Diagnosis, OverflowAndSaturation) {
  const double infinity = std::numeric_limits<double>::infinity();
  Random random(8);
  const Values r = random.normals(4000, 30000);
  for (const auto& [d, largest] :
       {std::pair(DType::float16, 65504.0), std::pair(DType::float8_e5m2, 57344.0)}) {
    Values over = r, clipped = r;
    for (std::size_t i = 0; i < r.size(); ++i) {
      if (std::abs(r[i]) > largest) over[i] = std::copysign(infinity, r[i]);
      if (std::abs(r[i]) > largest) clipped[i] = std::copysign(largest, r[i]);
    }
    FaultyPair pair(DType::float32, {40, 100}, r, over);
    expect_first(pair.noise(1e-7), "overflow: ");
    EXPECT_THAT(first_of(pair.diagnose()), HasSubstr("are infinite where the reference is beyond " +
                                                     std::string(name(d)) + "'s largest number"));
    FaultyPair saturated(DType::float32, {40, 100}, r, clipped);
    expect_first(saturated, "saturated: ");
    EXPECT_THAT(first_of(saturated.diagnose()), HasSubstr(std::string(name(d)) + "'s largest number"));
  }
  Values seven(r.size()), small(r.size());
  for (std::size_t i = 0; i < r.size(); ++i) {
    small[i] = r[i] / 10000;
    seven[i] = std::clamp(small[i], -7.0, 7.0);
  }
  expect_first(FaultyPair(DType::float32, {40, 100}, small, seven), "saturated: ");
  EXPECT_THAT(first_of(FaultyPair(DType::float32, {40, 100}, small, seven).diagnose()),
              HasSubstr("+-7, the largest that occurs"));
}

TEST(Diagnosis, BoundsOfEachElementAreTheTolerance) {
  Random random(9);
  const Values r = random.normals(600);
  Values a = r, bound(r.size());
  for (std::size_t i = 0; i < r.size(); ++i) {
    bound[i] = 1e-4 * (1 + static_cast<double>(i % 7));
    a[i] = 3 * r[i] + 2.5 * bound[i] * (2 * random.uniform() - 1);
  }
  FaultyPair pair(DType::float64, {600}, r, a);
  pair.context.allowed = {0, 0, bound};
  const auto found = pair.diagnose();
  EXPECT_EQ(first_of(found), "factor: actual = 3 x reference (3 = cp)");
  ASSERT_FALSE(found.empty());
  // Three times the value has three times the bound.
  EXPECT_NEAR(found[0].residual, 2.5 / 3, 0.02);
}

TEST(Diagnosis, MaskedElementsStayOutOfIt) {
  Random random(10);
  Values r = random.normals(600), a = r;
  for (std::size_t i = 0; i < r.size(); ++i)
    a[i] = i % 4 == 0 ? -std::numeric_limits<double>::infinity() : 2 * r[i];
  for (std::size_t i = 0; i < r.size(); i += 4) r[i] = a[i];
  r[1] = a[1] = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(first_of(FaultyPair(DType::float32, {20, 30}, r, a).noise(1e-7).diagnose()),
            "factor: actual = 2 x reference (2 = tp)");
  r[1] = 1;  // NaN on one side is not explained by a factor
  EXPECT_EQ(first_of(FaultyPair(DType::float32, {20, 30}, r, a).noise(1e-7).diagnose()), "nothing");
}

TEST(Diagnosis, SourcesThatDoNotLieInOnePlace) {
  const auto scattered = [](const Tensor& t) {
    return TensorSource(t.dtype(), t.shape(), [t](std::int64_t begin, std::span<std::byte> out) {
      std::ranges::copy(t.bytes().subspan(static_cast<std::size_t>(begin) * size_of(t.dtype()), out.size()),
                        out.begin());
    });
  };
  Random random(11);
  const Values r = random.normals(300 * 400);
  const std::pair<std::function<double(std::size_t)>, std::string> faults[] = {
      {[&](std::size_t i) { return r[i] / 4; }, "factor: actual = 0.25 x reference (0.25 = 1/dp)"},
      {[&](std::size_t i) { return r[i / 400 * 400 + 399 - i % 400]; },
       "permuted: the columns are in reversed order"},
      {[&](std::size_t i) { return r[(i + 2000) % r.size()]; },
       "permuted: the rows are rolled by -5: index 295 holds the reference's 0, with wrap-around"}};
  for (const auto& [value, text] : faults) {
    Values a(r.size());
    for (std::size_t i = 0; i < a.size(); ++i) a[i] = value(i);
    const FaultyPair pair(DType::float32, {300, 400}, r, a);
    EXPECT_EQ(first_of(pair.diagnose()), text);
    EXPECT_EQ(
        first_of(diagnose(scattered(pair.actual_tensor()), scattered(pair.reference_tensor()), pair.context)),
        text);
  }
}

TEST(Diagnosis, IntegersToo) {
  Random random(12);
  Values r(1200);
  for (double& x : r) x = static_cast<double>(random.below(1000));
  Values a = r;
  for (std::size_t i = 0; i < a.size(); ++i) a[i] = r[(i + 30) % a.size()];
  const auto integers = [](const Values& v) { return Tensor::from_values(DType::int32, {40, 30}, v); };
  EXPECT_EQ(first_of(diagnose(integers(a), integers(r), {})),
            "permuted: the rows are rolled by -1: index 39 holds the reference's 0, with wrap-around");
  EXPECT_EQ(
      first_of(diagnose(integers(a), FaultyPair(DType::float32, {40, 30}, r, r).reference_tensor(), {})),
      "nothing");
}

TEST(Diagnosis, AnInfinityWithoutALimitInSightSaysNothing) {
  Random random(8);
  const Values r = random.normals(4000);
  Values a = r;
  a[17] = std::numeric_limits<double>::infinity();
  EXPECT_EQ(first_of(FaultyPair(DType::float32, {40, 100}, r, a).diagnose()), "nothing");
}

}  // namespace
}  // namespace assay::diagnosis_test
