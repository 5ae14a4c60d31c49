#include "assay/golden/correctly_rounded.h"

#include <gtest/gtest.h>

#include <bit>
#include <cfenv>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "assay/golden/error.h"
#include "instruction_sets.h"
#include "mpfr_oracle.h"

namespace assay::correctly_rounded_test {
namespace {

constexpr float inf = std::numeric_limits<float>::infinity();

std::uint32_t bits(float x) {
  return std::bit_cast<std::uint32_t>(x);
}
float of_bits(std::uint32_t x) {
  return std::bit_cast<float>(x);
}

/// More than 200000: every exponent's ends and middle, the smallest numbers, bit patterns, the ranges that
/// networks use, and the neighbourhood of 1.
const std::vector<float>& samples() {
  static const std::vector<float> all = [] {
    std::vector<float> x = {0, inf, of_bits(0x7f7fffff), of_bits(0x7fc00000), of_bits(0xffc12345)};
    for (std::uint32_t exponent = 0; exponent < 255; ++exponent) {
      for (const std::uint32_t fraction :
           {0u, 1u, 2u, 3u, 0x3fffffu, 0x400000u, 0x400001u, 0x7ffffeu, 0x7fffffu})
        x.push_back(of_bits(exponent << 23 | fraction));
    }
    for (std::uint32_t i = 0; i < 500; ++i) {
      x.push_back(of_bits(i));
      x.push_back(of_bits(0x3f800000 - 250 + i));
    }
    std::mt19937_64 random(11);
    for (int i = 0; i < 30000; ++i) x.push_back(of_bits(static_cast<std::uint32_t>(random()) & 0x7fffffff));
    for (int i = 0; i < 2000; ++i) x.push_back(of_bits(static_cast<std::uint32_t>(random()) & 0xffffff));
    for (int i = 0; i < 70000; ++i) {
      const double unit = std::ldexp(static_cast<double>(random() >> 11), -53);
      const double scale = i % 3 == 0 ? 1 : i % 3 == 1 ? 16 : 128;
      x.push_back(static_cast<float>(unit * scale));
    }
    const std::size_t n = x.size();
    for (std::size_t i = 0; i < n; ++i) x.push_back(-x[i]);
    return x;
  }();
  return all;
}

std::vector<float> rounded(Function f, const std::vector<float>& x, int threads = 1) {
  std::vector<float> y(x.size(), -77);
  correctly_rounded(f, x, y, threads);
  return y;
}

float one(Function f, float x) {
  return rounded(f, {x})[0];
}

class CorrectlyRounded : public testing::TestWithParam<Function> {};

TEST_P(CorrectlyRounded, IsMpfrRoundedOnce) {
  ASSERT_GE(samples().size(), 200000u);
  const std::vector<float> y = rounded(GetParam(), samples());
  MpfrOracle oracle;
  int wrong = 0;
  for (std::size_t i = 0; i < y.size() && wrong < 10; ++i) {
    const float x = samples()[i];
    float expected = oracle(GetParam(), x);
    if (GetParam() == Function::rsqrt && x == 0) expected = std::copysign(inf, x);  // MPFR: always +inf
    if (std::isnan(expected)) expected = of_bits(0x7fc00000);
    if (bits(y[i]) != bits(expected)) {
      ++wrong;
      ADD_FAILURE() << name(GetParam()) << "(" << std::hexfloat << x << ") = " << y[i] << ", expected "
                    << expected;
    }
  }
}

TEST_P(CorrectlyRounded, TheSameBitsOnEveryInstructionSetAndThreadCount) {
  const std::vector<float> expected = rounded(GetParam(), samples());
  const auto same = [&](const std::vector<float>& y) {
    return std::equal(y.begin(), y.end(), expected.begin(), expected.end(),
                      [](float a, float b) { return bits(a) == bits(b); });
  };
  for (const int threads : {0, 2, 5}) EXPECT_TRUE(same(rounded(GetParam(), samples(), threads))) << threads;
  for_each_instruction_set(
      [&](const char* target) { EXPECT_TRUE(same(rounded(GetParam(), samples()))) << target; });
  std::vector<float> in_place = samples();
  correctly_rounded(GetParam(), in_place, in_place);
  EXPECT_TRUE(same(in_place));
}

TEST_P(CorrectlyRounded, EveryLengthAndNoElementMore) {
  const std::vector<float>& x = samples();
  const std::vector<float> whole = rounded(GetParam(), x);
  for (std::size_t n = 0; n <= 70; ++n) {
    const std::size_t start = 5000 + n % 7;
    std::vector<float> y(n + 3, 42);
    correctly_rounded(GetParam(), std::span(x).subspan(start, n), std::span(y).subspan(1, n));
    EXPECT_EQ(y[0], 42);
    EXPECT_EQ(y[n + 1], 42);
    for (std::size_t i = 0; i < n; ++i) ASSERT_EQ(bits(y[i + 1]), bits(whole[start + i]));
  }
}

INSTANTIATE_TEST_SUITE_P(Functions, CorrectlyRounded, testing::ValuesIn(all_functions),
                         [](const auto& info) { return std::string(name(info.param)); });

// float64 rounds these two wrong.
TEST(CorrectlyRounded, KnownHardCases) {
  MpfrOracle oracle;
  std::vector<float> y(1);
  for (const auto& [f, x] :
       {std::pair(Function::sigmoid, -0x1.4cp-18f), std::pair(Function::sin, 0x1.33333p13f)}) {
    EXPECT_EQ(correctly_rounded(f, std::span(&x, 1), y), 1) << name(f);  // went to MPFR
    EXPECT_EQ(y[0], oracle(f, x)) << name(f);
  }
  // 1/2 + x/4 - x^3/48: a tie between 1/2 - 41 and 1/2 - 42 steps, which the cubic term decides against even.
  EXPECT_EQ(one(Function::sigmoid, -0x1.4cp-18f), 0.5f - 41 * 0x1p-25f);
}

// Half of an odd subnormal is a tie; the square decides, upwards.
TEST(CorrectlyRounded, HalvesOfSubnormals) {
  const float tiny = of_bits(1);
  for (const Function f : {Function::silu, Function::gelu, Function::gelu_tanh}) {
    EXPECT_EQ(bits(one(f, tiny)), 1u) << name(f);
    EXPECT_EQ(bits(one(f, -tiny)), 0x80000000) << name(f);
    EXPECT_EQ(one(f, 5 * tiny), 3 * tiny) << name(f);
    EXPECT_EQ(one(f, -5 * tiny), -2 * tiny) << name(f);
  }
}

TEST(CorrectlyRounded, SpecialValues) {
  const struct {
    Function f;
    float x;
    std::uint32_t y;
  } table[] = {
      {Function::exp, -inf, bits(0)},
      {Function::exp, inf, bits(inf)},
      {Function::exp, 89, bits(inf)},
      {Function::exp, -104, bits(0)},
      {Function::exp, -103, 1},  // 2^-148.6
      {Function::log, 0, bits(-inf)},
      {Function::log, -0.f, bits(-inf)},
      {Function::log, 1, bits(0)},
      {Function::log, -1, 0x7fc00000},
      {Function::log, -inf, 0x7fc00000},
      {Function::log1p, -1, bits(-inf)},
      {Function::log1p, -0.f, bits(-0.f)},
      {Function::log1p, -2, 0x7fc00000},
      {Function::expm1, -inf, bits(-1)},
      {Function::expm1, -0.f, bits(-0.f)},
      {Function::sqrt, -0.f, bits(-0.f)},
      {Function::sqrt, -1, 0x7fc00000},
      {Function::sqrt, 4, bits(2)},
      {Function::rsqrt, 0, bits(inf)},
      {Function::rsqrt, -0.f, bits(-inf)},
      {Function::rsqrt, inf, bits(0)},
      {Function::rsqrt, -1, 0x7fc00000},
      {Function::reciprocal, -0.f, bits(-inf)},
      {Function::reciprocal, -inf, bits(-0.f)},
      {Function::reciprocal, 0x1p127f, 0x00400000},
      {Function::sin, inf, 0x7fc00000},
      {Function::sin, -0.f, bits(-0.f)},
      {Function::cos, -inf, 0x7fc00000},
      {Function::cos, 0, bits(1)},
      {Function::tanh, -inf, bits(-1)},
      {Function::tanh, -0.f, bits(-0.f)},
      {Function::erf, inf, bits(1)},
      {Function::erf, -0.f, bits(-0.f)},
      {Function::sigmoid, -inf, bits(0)},
      {Function::sigmoid, inf, bits(1)},
      {Function::sigmoid, 0, bits(.5f)},
      {Function::silu, -inf, 0x7fc00000},
      {Function::silu, inf, bits(inf)},
      {Function::silu, -1000, bits(-0.f)},
      {Function::silu, -0.f, bits(-0.f)},
      {Function::gelu, -inf, 0x7fc00000},
      {Function::gelu, inf, bits(inf)},
      {Function::gelu, -1e30f, bits(-0.f)},
      {Function::gelu, -0.f, bits(-0.f)},
      {Function::gelu_tanh, -inf, 0x7fc00000},
      {Function::gelu_tanh, inf, bits(inf)},
      {Function::gelu_tanh, -1e30f, bits(-0.f)},
      {Function::softplus, -inf, bits(0)},
      {Function::softplus, inf, bits(inf)},
      {Function::softplus, 1e30f, bits(1e30f)},
  };
  for (const auto& row : table)
    EXPECT_EQ(bits(one(row.f, row.x)), row.y) << name(row.f) << "(" << row.x << ") = " << one(row.f, row.x);
  for (const Function f : all_functions) {
    for (const std::uint32_t nan : {0x7fc00000u, 0xffc00000u, 0x7f800001u, 0xffffffffu})
      EXPECT_EQ(bits(one(f, of_bits(nan))), 0x7fc00000u) << name(f);
  }
}

// A caller may round up or flush subnormals.
TEST(CorrectlyRounded, IsIndependentOfTheFloatEnvironment) {
  const std::vector<float> x(samples().begin(), samples().begin() + 4000);
  for (const Function f : all_functions) {
    const std::vector<float> expected = rounded(f, x);
    std::fesetround(FE_UPWARD);
    const std::vector<float> upward = rounded(f, x);
    std::fesetround(FE_TONEAREST);
    for (std::size_t i = 0; i < x.size(); ++i) ASSERT_EQ(bits(upward[i]), bits(expected[i])) << name(f);
#if defined(__x86_64__)
    const unsigned control = __builtin_ia32_stmxcsr();
    __builtin_ia32_ldmxcsr(control | 0x8040);
    const std::vector<float> flushed = rounded(f, x);
    __builtin_ia32_ldmxcsr(control);
    for (std::size_t i = 0; i < x.size(); ++i) ASSERT_EQ(bits(flushed[i]), bits(expected[i])) << name(f);
#endif
  }
}

// Masked logits are full of infinities, and a diverged run of NaN: neither may cost MPFR.
TEST(CorrectlyRounded, SpecialValuesNeedNoMpfr) {
  const std::vector<float> x = {inf, -inf, of_bits(0x7fc00000), of_bits(0xff800001), 0, -0.f};
  std::vector<float> y(x.size());
  for_each_instruction_set([&](const char* target) {
    for (const Function f : all_functions)
      EXPECT_EQ(correctly_rounded(f, x, y), 0) << name(f) << " on " << target;
  });
}

TEST(CorrectlyRounded, RefusesOtherLengths) {
  const std::vector<float> x(3);
  std::vector<float> y(2);
  EXPECT_THROW(correctly_rounded(Function::exp, x, y), Error);
}

}  // namespace
}  // namespace assay::correctly_rounded_test
