#include "assay/golden/accumulator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "assay/golden/arithmetic.h"
#include "assay/golden/error.h"
#include "assay/golden/exact_sum.h"
#include "assay/golden/running_sum.h"

namespace assay::accumulator_test {
namespace {

using testing::HasSubstr;

ErrorModel device(std::string_view accumulator) {
  return {0x1p-24, 0x1p-149, parse_accumulator(accumulator)};
}

double bound_of(const ErrorModel& model, const std::vector<float>& terms) {
  const std::vector<Bound> exact(terms.begin(), terms.end());
  return accumulate(model, exact).error;
}

double exact_sum(const std::vector<float>& terms) {
  ExactSum sum;
  for (const float t : terms) sum.add(t);
  return sum.round();
}

double error_of(const Summation& how, const std::vector<float>& terms) {
  return std::abs(static_cast<double>(add_up(how, std::span<const float>(terms))) - exact_sum(terms));
}

enum class Data { normal, positive, equal };
std::vector<float> make_terms(std::size_t n, Data data, unsigned seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal;
  std::vector<float> terms(n);
  for (float& t : terms) {
    const float v = normal(generator);
    t = data == Data::normal ? v : data == Data::positive ? std::abs(v) : 0.1f;
  }
  return terms;
}

TEST(Accumulator, AllowsEveryCorrectOrder) {
  const ErrorModel float32 = device("float32");
  for (const std::size_t n : {1u, 2u, 3u, 17u, 128u, 1000u, 4096u, 65536u}) {
    for (const Data data : {Data::normal, Data::positive, Data::equal}) {
      for (unsigned seed = 1; seed <= 20; ++seed) {
        const auto terms = make_terms(n, data, seed);
        const double allowed = bound_of(float32, terms);
        EXPECT_LE(error_of({}, terms), allowed) << n;
        EXPECT_LE(error_of({.block = 32}, terms), allowed) << n;
        EXPECT_LE(error_of({.pairwise = true}, terms), allowed) << n;
        EXPECT_LE(error_of({.pairwise = true}, terms), bound_of(device("float32,tree"), terms)) << n;
        EXPECT_LE(error_of({.block = 32}, terms), bound_of(device("float32,block=32"), terms)) << n;
        EXPECT_LE(allowed, bound_of(device("float32,worst"), terms)) << n;
        EXPECT_LE(error_of({.accumulator = DType::bfloat16}, terms), bound_of(device("bfloat16"), terms))
            << n;
      }
    }
  }
}

// Every lane takes each L-th term; then the lanes are joined.
float in_lanes(const std::vector<float>& terms, std::size_t lanes) {
  std::vector<float> sums(lanes, 0.f);
  for (std::size_t i = 0; i < terms.size(); ++i) sums[i % lanes] += terms[i];
  return add_up({}, std::span<const float>(sums));
}

// Terms whose signs alternate are sums of one sign to a device that adds in lanes.
TEST(Accumulator, AllowsLanes) {
  for (const std::size_t n : {100u, 1024u, 4096u, 16384u, 65536u}) {
    for (unsigned seed = 1; seed <= 10; ++seed) {
      std::vector<float> terms = make_terms(n, Data::positive, seed);
      for (std::size_t i = 0; i < n; ++i) terms[i] = (i % 2 == 0 ? 1.f : -1.f) * (1 + 0.1f * terms[i]);
      for (const std::size_t lanes : {2u, 8u, 16u, 32u, 256u}) {
        const double error = std::abs(static_cast<double>(in_lanes(terms, lanes)) - exact_sum(terms));
        EXPECT_LE(error, bound_of(device("float32"), terms)) << n << " terms, " << lanes << " lanes";
      }
    }
  }
}

// Equal terms round alike, in stretches otherwise than in one.
TEST(Accumulator, AllowsEqualTermsInStretches) {
  for (const float term : {0.1f, 1.2000163f, 1.0000001f, 0.7f}) {
    const std::vector<float> terms(65536, term);
    for (const std::int64_t block : {0, 32, 128, 1024, 8192, 32768}) {
      EXPECT_LE(error_of({.block = block}, terms), bound_of(device("float32"), terms))
          << term << ' ' << block;
    }
  }
}

TEST(Accumulator, AFinerOneIsRoundedAtTheEnd) {
  for (unsigned seed = 1; seed <= 20; ++seed) {
    const auto terms = make_terms(1000, Data::normal, seed);
    const double exact = exact_sum(terms);
    const double error = std::abs(static_cast<double>(static_cast<float>(exact)) - exact);
    EXPECT_LE(error, bound_of(device("float64"), terms));
    EXPECT_LT(bound_of(device("float64"), terms), bound_of(device("float32"), terms));
  }
}

// Faults that tolerances by accumulation count alone let through: K = 4096, weights of 0.02.
TEST(Accumulator, AllowsNoCoarserArithmetic) {
  std::mt19937 generator(1);
  std::normal_distribution<float> normal, small(0, 0.02f);
  int tf32 = 0, hf32 = 0, bf16 = 0, skipped = 0, tile = 0, narrow = 0;
  constexpr int outputs = 64;
  for (int i = 0; i < outputs; ++i) {
    std::vector<float> a(4096), b(a.size()), terms(a.size());
    for (float& v : a) v = normal(generator);
    for (float& v : b) v = small(generator);
    const auto products = [&](DType inputs) {
      for (std::size_t k = 0; k < a.size(); ++k) {
        terms[k] = static_cast<float>(round_to(inputs, static_cast<double>(a[k])) *
                                      round_to(inputs, static_cast<double>(b[k])));
      }
      return exact_sum(terms);
    };
    std::vector<Bound> exact;
    for (std::size_t k = 0; k < a.size(); ++k) exact.push_back(Bound(a[k]) * Bound(b[k]));
    const Bound golden = accumulate(device("float32"), exact);
    const auto rejected = [&](double value) { return std::abs(value - golden.value) > golden.error ? 1 : 0; };
    tf32 += rejected(products(DType::tfloat32));
    hf32 += rejected(products(DType::hfloat32));
    bf16 += rejected(products(DType::bfloat16));
    EXPECT_EQ(rejected(products(DType::float32)), 0);
    const std::span<const float> all(terms);
    EXPECT_EQ(rejected(add_up({}, all)), 0);
    skipped += rejected(add_up({.skip_one = true}, all));
    tile += rejected(add_up({.drop_tile = true}, all));
    narrow += rejected(add_up({.accumulator = DType::bfloat16}, all));
  }
  EXPECT_GE(tf32, outputs * 9 / 10);
  EXPECT_GE(hf32, outputs * 8 / 10);
  EXPECT_GE(bf16, outputs * 9 / 10);
  EXPECT_GE(skipped, outputs * 9 / 10);
  EXPECT_GE(tile, outputs * 9 / 10);
  EXPECT_EQ(narrow, outputs);
}

// One matrix unit, term by term as its model says, in float64, which holds every step exactly at these sizes.
double matrix_unit(const std::vector<float>& terms, std::size_t fused, int fraction_bits, int result_bits) {
  const auto cut = [](double v, int exponent, int bits) {
    return std::ldexp(std::trunc(std::ldexp(v, bits - exponent)), exponent - bits);
  };
  double total = 0;
  for (std::size_t i = 0; i < terms.size(); i += fused) {
    std::vector<double> step = {total};
    for (std::size_t k = i; k < std::min(i + fused, terms.size()); ++k) step.push_back(terms[k]);
    int largest = -1000;
    for (const double v : step) largest = v == 0 ? largest : std::max(largest, std::ilogb(v));
    total = 0;
    for (const double v : step) total += cut(v, largest, fraction_bits);
    if (total != 0) total = cut(total, std::ilogb(total), result_bits);
  }
  return total;
}

TEST(Accumulator, BoundsTruncatingMatrixUnits) {
  double most = 0;
  for (unsigned seed = 1; seed <= 50; ++seed) {
    for (const Data data : {Data::normal, Data::positive}) {
      const auto terms = make_terms(2048, data, seed);
      const double exact = exact_sum(terms);
      const double hopper = std::abs(matrix_unit(terms, 16, 25, 23) - exact);
      EXPECT_LE(hopper, bound_of(device("hopper"), terms));
      most = std::max(most, hopper / bound_of(device("hopper"), terms));
      const double fp8 = std::abs(matrix_unit(terms, 32, 13, 13) - exact);
      EXPECT_LE(fp8, bound_of(device("hopper-fp8"), terms));
      if (data == Data::positive) {
        EXPECT_GT(fp8, bound_of(device("hopper"), terms));
      }
      double promoted = 0;
      for (std::size_t i = 0; i < terms.size(); i += 128) {
        const auto first = terms.begin() + static_cast<std::ptrdiff_t>(i);
        promoted = static_cast<float>(promoted + matrix_unit({first, first + 128}, 32, 13, 13));
      }
      const double allowed = bound_of(device("hopper-fp8,promote=128"), terms);
      EXPECT_LE(std::abs(promoted - exact), allowed);
      EXPECT_LT(allowed, bound_of(device("hopper-fp8"), terms));
    }
  }
  EXPECT_GT(most, 0.02) << "a bound that is never approached proves nothing";
}

TEST(Accumulator, OwnErrorsAreZeroWhereNothingIsRounded) {
  const ErrorScope scope({.unit_roundoff = 0x1p-53, .min_subnormal = 0x1p-1074, .own = true});
  EXPECT_EQ((Bound(0x1p40) + Bound(1)).error, 0);
  EXPECT_EQ((Bound(0x1p53) + Bound(1)).error, 1);
  EXPECT_EQ((Bound(3) * Bound(5) / Bound(15)).error, 0);
  EXPECT_GT((Bound(1) / Bound(3)).error, 0);
  EXPECT_EQ(sqrt(Bound(49)).error, 0);
  EXPECT_GT(sqrt(Bound(2)).error, 0);
  // What is below half a unit in the last place is still an error.
  const Bound near_thirty(30, 1e-16);
  EXPECT_GT(exp(near_thirty).error, exp(Bound(30)).error);
  EXPECT_EQ(
      stepped<Bound>(Bound(1 + 0x1p-8, 0x1p-70), [](double v) { return round_to(DType::bfloat16, v); }).error,
      0x1p-7);
  EXPECT_EQ(sum<Bound>(3, [](auto i) { return Bound(static_cast<double>(i)); }).error, 0);
  EXPECT_EQ(sum<Bound>(2, [](auto i) { return Bound(i == 0 ? 0x1p60 : 1.0); }).error, 1);
}

// In steps of 1, and across the lengths at which lanes and stretches begin.
TEST(Accumulator, RunningSumsAreThoseOfTheTermsSoFar) {
  std::mt19937 random(7);
  std::normal_distribution<double> normal(0.3, 1);
  std::vector<Bound> terms;
  for (int i = 0; i < 2200; ++i)
    terms.emplace_back(static_cast<float>(normal(random)), i % 3 == 0 ? 0x1p-30 : 0);
  for (const char* how : {"float32", "float32,worst", "float32,tree", "float32,block=16", "bfloat16",
                          "float64", "hopper", "hopper-fp8,promote=128"}) {
    const ErrorModel model = device(how);
    const ErrorScope scope(model);
    RunningSum sum(model);
    for (std::size_t i = 0; i < terms.size(); ++i) {
      sum.add(terms[i]);
      if (i > 70 && i % 61 != 0) continue;
      const Bound whole = accumulate(model, std::span(terms).first(i + 1));
      ASSERT_EQ(sum.value().value, whole.value) << how << " " << i;
      ASSERT_EQ(sum.value().error, whole.error) << how << " " << i;
    }
  }
}

TEST(Accumulator, SaysWhatItDoesNotKnow) {
  const auto message = [](std::string_view text) -> std::string {
    try {
      parse_accumulator(text);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(message("quad"), HasSubstr("expected a floating dtype or one of volta, ampere"));
  EXPECT_THAT(message("int32"), HasSubstr("there is no accumulator 'int32'"));
  EXPECT_THAT(message("float32,block=0"), HasSubstr("'0' is no number; expected one above 0"));
  EXPECT_THAT(message("float32,backwards"), HasSubstr("'backwards' is not known; expected tree"));
  EXPECT_THAT(message("hopper,tree"), HasSubstr("'tree' is not known; expected promote=N"));
}

}  // namespace
}  // namespace assay::accumulator_test
