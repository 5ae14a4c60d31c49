#include "assay/golden/bound_kernels.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "instruction_sets.h"

namespace assay::bound_kernels_test {
namespace {

constexpr std::size_t lengths[] = {0, 1, 3, 8, 21, 64};

std::vector<Bound> line_of(std::size_t n) {
  std::mt19937 random(static_cast<unsigned>(n));
  std::normal_distribution<double> normal(0, 0.1);
  std::vector<Bound> line;
  for (std::size_t i = 0; i < n; ++i) {
    const double v = normal(random);
    // Of a float32, of what is near to one, of what is not.
    line.emplace_back(i % 3 == 0 ? static_cast<float>(v) : v, i % 2 == 0 ? 0x1p-9 * std::abs(v) : 0x1p-40);
  }
  return line;
}

TEST(BoundKernels, FindTheLargestOfWhatIsFinite) {
  for_each_instruction_set([](const std::string& name) {
    for (const std::size_t n : lengths) {
      std::vector<Bound> line = line_of(n);
      for (const bool is_finite : {true, false}) {
        if (!is_finite && n < 3) continue;
        if (!is_finite) line[n / 2] = {NAN, NAN}, line[0] = {-5, INFINITY}, line[n - 1] = {INFINITY, 7};
        double value = 0, error = 0;
        for (const Bound& x : line) {
          if (std::isfinite(x.value)) value = std::max(value, std::abs(x.value));
          if (std::isfinite(x.value) && std::isfinite(x.error)) error = std::max(error, x.error);
        }
        const LargestOfLine made = largest_of(line);
        EXPECT_EQ(made.value, value) << name << n;
        EXPECT_EQ(made.error, error) << name << n;
        EXPECT_EQ(made.is_finite, is_finite) << name << n;
      }
    }
  });
}

TEST(BoundKernels, CutSharesToTwelveBits) {
  constexpr double scale = 2, hidden = 1. / 64;
  for_each_instruction_set([](const std::string& name) {
    for (const std::size_t n : lengths) {
      std::vector<Bound> line = line_of(n);
      if (n > 4) line[4] = {0x1p-70, 0x1p-70};
      for (const Share share : {Share::magnitude, Share::square, Share::error, Share::value_and_error}) {
        std::vector<float> made(n);
        cut_line(line, share, scale, hidden, made.data());
        for (std::size_t i = 0; i < n; ++i) {
          const double v = std::abs(line[i].value), e = line[i].error;
          const double off = std::abs(v - static_cast<double>(static_cast<float>(v)));
          double wanted = scale * v;
          if (share == Share::square) wanted *= wanted;
          if (share == Share::value_and_error) wanted = scale * (v + e);
          if (share == Share::error) wanted = scale * (off > 0 && off <= hidden * e ? (1 - hidden) * e : e);
          const auto narrow = static_cast<float>(wanted);
          const float cut = std::bit_cast<float>(std::bit_cast<std::uint32_t>(narrow) & ~0xFFFU);
          EXPECT_EQ(made[i], narrow < 0x1p-62F ? 0 : cut) << name << n << " " << i;
        }
      }
    }
  });
}

TEST(BoundKernels, SettleSumsAsTheyDoOneByOne) {
  ErrorModel device = float32_device;
  device.quick = true;
  const ErrorScope scope(device);
  for_each_instruction_set([](const std::string& name) {
    for (const std::size_t n : lengths) {
      std::mt19937 random(static_cast<unsigned>(n));
      std::normal_distribution<double> normal;
      std::vector<double> values(n), squares(n), inherited(n);
      for (std::size_t i = 0; i < n; ++i) {
        values[i] = normal(random);
        squares[i] = std::abs(normal(random));
        inherited[i] = 1e-7 * std::abs(normal(random));
      }
      if (n > 8) values[1] = NAN, values[5] = INFINITY, squares[n - 1] = INFINITY;
      for (const std::int64_t terms : {0, 1, 2, 64, 65, 4096, 1 << 20}) {
        std::vector<Bound> made(n);
        settle_line({values.data(), squares.data(), inherited.data(), n, terms, 0.75}, made.data());
        for (std::size_t i = 0; i < n; ++i) {
          const double u = float32_device.unit_roundoff, v = values[i];
          const double rounded = std::isfinite(v) ? u * std::max(std::abs(v), std::sqrt(squares[i])) : 0;
          const Bound wanted =
              settled(v, 0.75 * (inherited[i] + (rounded + least_loss(terms, v, squares[i], u))));
          EXPECT_EQ(std::bit_cast<std::uint64_t>(made[i].value), std::bit_cast<std::uint64_t>(wanted.value));
          EXPECT_TRUE(made[i].error == wanted.error || std::isnan(wanted.error))
              << name << " " << terms << " " << i << " " << made[i].error << " " << wanted.error;
        }
      }
    }
  });
}

}  // namespace
}  // namespace assay::bound_kernels_test
