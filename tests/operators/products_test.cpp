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

ErrorModel narrow_device() {
  ErrorModel device = float32_device;
  device.quick = true;
  device.stored_roundoff = 0x1p-8;
  return device;
}

// Of the squares a part is enough where it stands for all, not where few terms make the sum.
TEST(QuickProducts, OfFewLargeTermsAllowWhatTheseLose) {
  constexpr std::int64_t K = 400;
  std::vector<Bound> a(K, Bound(1e-3)), b(K, Bound(1)), y(1);
  for (const std::int64_t large : {1, 6, 399}) a[static_cast<std::size_t>(large)] = 1;
  const ErrorScope scope(narrow_device());
  quick_products({1, 1, K, {a.data(), K, 1}, {b.data(), 1, 1}, {y.data(), 1, 1}});
  const double value = 3 + 397e-3, squares = 3 + 397e-6, u = float32_device.unit_roundoff;
  EXPECT_NEAR(y[0].value, value, 1e-12);
  EXPECT_GE(y[0].error, (u * value + least_loss(K, value, squares, u)) * (1 - 0x1p-9));
}

// Whatever a value is taken as, what is allowed around it is allowed around its own.
TEST(QuickProducts, OfNarrowFactorsStayWithinTheirErrors) {
  constexpr std::int64_t M = 5, N = 7, K = 130;
  std::mt19937 random(2);
  std::normal_distribution<double> normal;
  std::vector<Bound> a, b, y(M * N);
  const auto add = [&](std::vector<Bound>& to, double share) {
    const double v = normal(random);
    to.emplace_back(v, share * std::abs(v));
  };
  for (std::int64_t i = 0; i < M * K; ++i) add(a, i % K < 100 ? 0x1p-8 : 0);
  for (std::int64_t i = 0; i < K * N; ++i) add(b, i % N < 3 ? 0 : 0x1p-15);
  const ErrorScope scope(narrow_device());
  quick_products({M, N, K, {a.data(), K, 1}, {b.data(), N, 1}, {y.data(), N, 1}});
  for (std::int64_t m = 0; m < M; ++m) {
    for (std::int64_t n = 0; n < N; ++n) {
      double value = 0, squares = 0, inherited = 0;
      for (std::int64_t k = 0; k < K; ++k) {
        const Bound &x = a[static_cast<std::size_t>(m * K + k)], &w = b[static_cast<std::size_t>(k * N + n)];
        value += x.value * w.value;
        squares += x.value * w.value * (x.value * w.value);
        inherited += std::abs(x.value) * w.error + x.error * (std::abs(w.value) + w.error);
      }
      const double u = float32_device.unit_roundoff;
      const double allowed =
          inherited + u * std::max(std::abs(value), std::sqrt(squares)) + least_loss(K, value, squares, u);
      const Bound& of = y[static_cast<std::size_t>(m * N + n)];
      EXPECT_LE(std::abs(of.value - value) + of.error, allowed);
      EXPECT_GE(of.error, 0.95 * inherited);
    }
  }
}

TEST(QuickSums, OfPartsAllowWhatOneProductAllows) {
  constexpr std::int64_t M = 6, N = 5, K = 90;
  std::mt19937 random(3);
  std::normal_distribution<double> normal;
  std::vector<Bound> a, b, y(M * N);
  for (std::int64_t i = 0; i < M * K; ++i) a.emplace_back(normal(random), 1e-6);
  for (std::int64_t i = 0; i < K * N; ++i) b.emplace_back(normal(random), 1e-7);
  // The last part is of the last rows alone: the others have zeros there.
  for (std::int64_t m = 0; m < 2; ++m) {
    for (std::int64_t k = 60; k < K; ++k) a[static_cast<std::size_t>(m * K + k)] = 0;
  }
  ErrorModel device = float32_device;
  device.quick = true;
  const ErrorScope scope(device);
  quick_products({M, N, K, {a.data(), K, 1}, {b.data(), N, 1}, {y.data(), N, 1}});
  QuickSums sums(M, N);
  for (std::int64_t k = 0; k < K; k += 30) {
    const std::int64_t first = k == 60 ? 2 : 0;
    sums.add(first, {M - first, N, 30, {a.data() + first * K + k, K, 1}, {b.data() + k * N, N, 1}, {}});
  }
  for (std::int64_t m = 0; m < M; ++m) {
    for (std::int64_t n = 0; n < N; ++n) {
      const Bound made = sums.sum(m, n, K), whole = y[static_cast<std::size_t>(m * N + n)];
      EXPECT_NEAR(made.value, whole.value, 1e-12);
      EXPECT_NEAR(made.error, whole.error, 0x1p-9 * whole.error);
    }
  }
}

}  // namespace
}  // namespace assay::products_test
