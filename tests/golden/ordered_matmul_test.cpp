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
  multiply(of);
  for (std::int64_t m = 0; m < M; ++m) {
    for (std::int64_t n = 0; n < N; ++n) {
      T total = T(0);
      for (std::int64_t k = 0; k < K; ++k) total += of.a(m, k) * of.b(k, n);
      if (more) total += of.last(m, n);
      ASSERT_EQ(of.y(m, n), total) << M << " x " << N << " x " << K << ", element " << m << ", " << n;
    }
  }
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

}  // namespace
}  // namespace assay::ordered_matmul_test
