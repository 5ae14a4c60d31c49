#include "assay/operators/engine/fitted_turns.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace assay {
namespace {

// Llama 3.1's: those of the base 500,000, of which long waves are stretched by 8 and those between are mixed
// (transformers 5.14, modeling_rope_utils.py).
std::vector<double> llama3(std::int64_t width) {
  std::vector<double> all;
  for (std::int64_t i = 0; i < width; i += 2) {
    const double f = std::pow(500000, -static_cast<double>(i) / static_cast<double>(width));
    const double turns = 8192 * f / (2 * std::numbers::pi), smooth = (turns - 1) / (4 - 1);
    all.push_back(turns < 1 ? f / 8 : turns > 4 ? f : (1 - smooth) * f / 8 + smooth * f);
  }
  return all;
}

struct Recording {
  Tensor x, y;
};

// [heads, tokens, width], as a kernel stores it that computes in float64.
Recording recorded(DType dtype, std::int64_t heads, std::int64_t tokens, const std::vector<double>& f,
                   bool half, unsigned seed, double magnitude = 1) {
  const auto pairs = static_cast<std::int64_t>(f.size()), width = 2 * pairs;
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal;
  std::vector<double> x(static_cast<std::size_t>(heads * tokens * width));
  for (double& v : x) v = round_to(dtype, normal(random), Rounding::nearest_even, Overflow::saturate);
  std::vector<double> y(x.size());
  for (std::int64_t row = 0; row < heads * tokens; ++row) {
    for (std::int64_t p = 0; p < pairs; ++p) {
      const auto i = static_cast<std::size_t>(row * width + (half ? p : 2 * p));
      const std::size_t j = i + static_cast<std::size_t>(half ? pairs : 1);
      const double angle = static_cast<double>(row % tokens) * f[static_cast<std::size_t>(p)];
      y[i] = magnitude * (x[i] * std::cos(angle) - x[j] * std::sin(angle));
      y[j] = magnitude * (x[j] * std::cos(angle) + x[i] * std::sin(angle));
    }
  }
  return {Tensor::from_values(dtype, {heads, tokens, width}, x),
          Tensor::from_values(dtype, {heads, tokens, width}, y)};
}

std::vector<std::int64_t> counted(std::int64_t tokens) {
  std::vector<std::int64_t> at;
  for (std::int64_t t = 0; t < tokens; ++t) at.push_back(t);
  return at;
}

TEST(FittedTurns, HaveWhatTheKernelHadWithinTheirErrors) {
  const std::vector<double> f = llama3(16);
  for (const DType dtype : {DType::bfloat16, DType::float16, DType::float32}) {
    for (const bool half : {true, false}) {
      for (unsigned seed = 1; seed <= 20; ++seed) {
        const Recording r = recorded(dtype, 3, 33, f, half, seed);
        const auto fitted = fitted_turns(r.x, r.y, {1, 16, half}, counted(33));
        ASSERT_TRUE(fitted) << name(dtype);
        for (std::size_t p = 0; p < f.size(); ++p) {
          EXPECT_NEAR(fitted->frequencies[p], f[p], fitted->errors[p]) << name(dtype) << ' ' << p;
          EXPECT_LT(fitted->errors[p], 2 * unit_roundoff(dtype)) << name(dtype) << ' ' << p;
        }
        EXPECT_NEAR(fitted->magnitude, 1, unit_roundoff(dtype));
        EXPECT_FALSE(fitted_turns(r.x, r.y, {1, 16, !half}, counted(33)));
      }
    }
  }
}

TEST(FittedTurns, SayTheMagnitude) {
  const Recording r = recorded(DType::bfloat16, 2, 16, llama3(8), true, 1, 1.25);
  EXPECT_NEAR(fitted_turns(r.x, r.y, {1, 8, true}, counted(16))->magnitude, 1.25, 0x1p-8);
}

TEST(FittedTurns, AreNotSeenInTooFewTokensNorWhereTheyGrow) {
  const std::vector<double> f = llama3(8);
  const Recording few = recorded(DType::float32, 1, 2, f, true, 1),
                  enough = recorded(DType::float32, 1, 5, f, true, 1);
  EXPECT_FALSE(fitted_turns(few.x, few.y, {1, 8, true}, counted(2)));
  EXPECT_TRUE(fitted_turns(enough.x, enough.y, {1, 8, true}, counted(5)));
  EXPECT_FALSE(fitted_turns(enough.x, enough.y, {1, 8, true}, {0, 1, 2, 4, 5}));
  // A position is taken twice: no frequency makes that.
  Recording other = recorded(DType::float32, 2, 9, f, true, 2);
  std::vector<double> y = other.y.values();
  for (std::size_t i = 0; i < 8; ++i) y[8 * 8 + i] = y[7 * 8 + i];
  other.y = Tensor::from_values(DType::float32, other.y.shape(), y);
  EXPECT_FALSE(fitted_turns(other.x, other.y, {1, 8, true}, counted(9)));
}

TEST(FittedTurns, ChannelsThatStayDoNotTurn) {
  const Tensor x = Tensor::from_values(DType::float32, {2, 6},
                                       std::vector<double>{1, 2, 3, 4, 5, 6, 1, 2, 3, 4, 5, 6}),
               y = Tensor::from_values(DType::float32, {2, 6},
                                       std::vector<double>{1, 2, 3, 4, 5, 6, 1, 2, 0, 4, 5, 6});
  EXPECT_EQ(rotated_channels(x, y), (std::vector<std::int64_t>{6, 4}));
  EXPECT_EQ(rotated_channels(x, x), (std::vector<std::int64_t>{6}));
}

}  // namespace
}  // namespace assay
