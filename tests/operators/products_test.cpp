#include "assay/operators/engine/products.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "assay/golden/accumulator.h"

namespace assay::products_test {
namespace {

// Wherever the factors lie, squares that float32 has no number for change nothing.
TEST(QuickProducts, AllowWhatTheSquaresOfTheirTermsAllow) {
  constexpr std::int64_t M = 9, N = 11, K = 300;
  std::mt19937 random(1);
  std::normal_distribution<double> normal;
  for (const double scale : {1e-35, 1e-20, 1., 1e18}) {
    std::vector<Bound> a, b, y(M * N);
    for (std::int64_t i = 0; i < M * K; ++i) a.emplace_back(scale * normal(random));
    for (std::int64_t i = 0; i < K * N; ++i) b.emplace_back(normal(random), 1e-9);
    ErrorModel device = float32_device;
    device.quick = true;
    const ErrorScope scope(device);
    const double u = device.unit_roundoff;
    quick_products({M, N, K, {a.data(), K, 1}, {b.data(), N, 1}, {y.data(), N, 1}});
    for (std::int64_t m = 0; m < M; ++m) {
      for (std::int64_t n = 0; n < N; ++n) {
        double value = 0, squares = 0, inherited = 0;
        for (std::int64_t k = 0; k < K; ++k) {
          const Bound &x = a[static_cast<std::size_t>(m * K + k)],
                      &w = b[static_cast<std::size_t>(k * N + n)];
          value += x.value * w.value;
          squares += x.value * w.value * (x.value * w.value);
          inherited += std::abs(x.value) * w.error;
        }
        const double allowed =
            inherited + u * std::max(std::abs(value), std::sqrt(squares)) + least_loss(K, value, squares, u);
        const Bound& of = y[static_cast<std::size_t>(m * N + n)];
        EXPECT_EQ(of.value, value);
        EXPECT_LE(of.error, allowed);
        EXPECT_GE(of.error, allowed * (1 - 0x1p-10)) << scale;  // squares are cut to 12 bits
      }
    }
  }
}

TEST(QuickProducts, HideNothingThatIsNoNumber) {
  std::vector<Bound> a(6, Bound(1)), b(6, Bound(2)), y(4);
  a[1] = Bound(NAN);
  b[5] = Bound(INFINITY);  // of the second column
  ErrorModel device = float32_device;
  device.quick = true;
  const ErrorScope scope(device);
  quick_products({2, 2, 3, {a.data(), 3, 1}, {b.data(), 2, 1}, {y.data(), 2, 1}});
  EXPECT_TRUE(std::isnan(y[0].value) && std::isnan(y[1].value));
  EXPECT_EQ(y[2].value, 6);
  EXPECT_TRUE(std::isfinite(y[2].error));
  EXPECT_TRUE(std::isinf(y[3].value));
  EXPECT_EQ(y[3].error, 0);
}

}  // namespace
}  // namespace assay::products_test
