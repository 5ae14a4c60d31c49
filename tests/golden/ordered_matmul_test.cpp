#include "assay/golden/ordered_matmul.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <random>
#include <type_traits>
#include <vector>

namespace assay::ordered_matmul_test {
namespace {

// Magnitudes so far apart that another order, or a product that is not rounded, changes the sum.
template <class T>
std::vector<T> numbers(std::int64_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<T> x;
  for (std::int64_t i = 0; i < count; ++i) {
    const T mantissa = (static_cast<T>(random()) / T(0x1p31) - 1) / 3;
    x.push_back(std::ldexp(mantissa, static_cast<int>(random() % 24)));
  }
  return x;
}

// Some rows of float32, whose products may be fused, and some that are none.
std::vector<double> mixed(std::int64_t rows, std::int64_t columns, unsigned seed, std::int64_t float32_rows) {
  std::vector<double> x = numbers<double>(rows * columns, seed);
  for (std::int64_t i = 0; i < float32_rows * columns; ++i) {
    double& v = x[static_cast<std::size_t>(i)];
    v = static_cast<float>(v);
  }
  return x;
}

template <class T>
void expect_plain_loops(const OrderedMatmul<T>& of) {
  multiply(of);
  for (std::int64_t m = 0; m < of.M; ++m) {
    for (std::int64_t n = 0; n < of.N; ++n) {
      T total = T(0);
      for (std::int64_t k = 0; k < of.K; ++k) total += of.a(m, k) * of.b(k, n);
      if (of.last.x != nullptr) total += of.last(m, n);
      if (std::isnan(total))
        ASSERT_TRUE(std::isnan(of.y(m, n)));
      else
        ASSERT_EQ(of.y(m, n), total) << of.M << " x " << of.N << " x " << of.K << ", element " << m << ", "
                                     << n;
    }
  }
}

template <class T>
void expect_plain_loops(std::int64_t M, std::int64_t N, std::int64_t K, bool ta, bool tb, bool ty,
                        bool more) {
  const auto matrix = [](auto* x, std::int64_t rows, std::int64_t columns, bool transposed) {
    using Element = std::remove_pointer_t<decltype(x)>;
    return transposed ? Strided<Element>{x, 1, rows} : Strided<Element>{x, columns, 1};
  };
  const std::vector<T> a = numbers<T>(M * K, 1), b = numbers<T>(K * N, 2), last = numbers<T>(N, 3);
  std::vector<T> y(static_cast<std::size_t>(M * N), T(7));
  const OrderedMatmul<T> of = {M,
                               N,
                               K,
                               matrix(a.data(), M, K, ta),
                               matrix(b.data(), K, N, tb),
                               matrix(y.data(), M, N, ty),
                               {more ? last.data() : nullptr, 0, 1}};
  expect_plain_loops(of);
}

TEST(OrderedMatmul, HasTheBitsOfThePlainLoops) {
  for (const std::int64_t M : {0, 1, 3, 4, 9, 34}) {
    for (const std::int64_t N : {0, 1, 5, 8, 17, 33}) {
      for (const std::int64_t K : {0, 1, 6, 40}) {
        for (int layout = 0; layout < 16; ++layout) {
          const auto is = [&](int bit) { return (layout >> bit & 1) != 0; };
          expect_plain_loops<float>(M, N, K, is(0), is(1), is(2), is(3));
          expect_plain_loops<double>(M, N, K, is(0), is(1), is(2), is(3));
        }
      }
    }
  }
}

TEST(OrderedMatmul, HasTheBitsOfThePlainLoopsWhereItFuses) {
  constexpr std::int64_t M = 150, N = 130, K = 530;  // several panels of each
  for (const std::int64_t rows : {std::int64_t{0}, std::int64_t{70}, M}) {
    std::vector<double> a = mixed(M, K, 1, rows), b = mixed(N, K, 2, N), y(M * N);
    expect_plain_loops<double>({M, N, K, {a.data(), K, 1}, {b.data(), 1, K}, {y.data(), N, 1}});
    expect_plain_loops<double>({N, M, K, {b.data(), K, 1}, {a.data(), 1, K}, {y.data(), 1, N}});
    a[3 * K + 7] = INFINITY;
    b[5 * K + 7] = 0;
    b[6 * K + 400] = NAN;
    expect_plain_loops<double>({M, N, K, {a.data(), K, 1}, {b.data(), 1, K}, {y.data(), N, 1}});
  }
}

}  // namespace
}  // namespace assay::ordered_matmul_test
