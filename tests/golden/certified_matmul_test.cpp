#include <fmt/core.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <boost/multiprecision/mpfr.hpp>
#include <cmath>

#include "assay/golden/dtype.h"
#include "assay/golden/error.h"
#include "certified_product.h"

namespace assay::certified_matmul_test {
namespace {

/// By MPFR: 770 bits hold every sum of float32 products (2^-298 to 2^256, K < 2^200). mpfr_get_flt rounds
/// once.
float truth(const MatrixView& a, const MatrixView& b, std::int64_t i, std::int64_t j) {
  using Exact = boost::multiprecision::number<boost::multiprecision::mpfr_float_backend<232>>;  // digits
  Exact sum = 0;
  bool positive = false, negative = false;
  for (std::int64_t k = 0; k < a.columns; ++k) {
    const double product = double{a(i, k)} * double{b(k, j)};
    if (std::isnan(product)) return nan;
    if (std::isinf(product))
      (product > 0 ? positive : negative) = true;
    else
      sum += product;
  }
  if (positive || negative) return positive && negative ? nan : positive ? inf : -inf;
  return sum == 0 ? 0.f : mpfr_get_flt(sum.backend().data(), MPFR_RNDN);
}

int wrong_elements(const Matrix& a, const Matrix& b, const std::vector<float>& y) {
  int wrong = 0;
  for (std::int64_t i = 0; i < a.view.rows; ++i) {
    for (std::int64_t j = 0; j < b.view.columns; ++j) {
      const float expected = truth(a.view, b.view, i, j);
      const float found = y[static_cast<std::size_t>(i * b.view.columns + j)];
      if (bits(found) == bits(expected)) continue;
      if (++wrong <= 3) ADD_FAILURE() << "y(" << i << ", " << j << ") is " << found << ", not " << expected;
    }
  }
  return wrong;
}

struct Kind {
  const char* name;
  double (*draw)(Random&);
};

const Kind kinds[] = {
    {"normal", normal},
    {"heavy tail", [](Random& r) { return normal(r) * std::exp(2 * normal(r)); }},
    {"post-ReLU", [](Random& r) { return std::max(0., normal(r)); }},
    {"all positive", [](Random& r) { return std::abs(normal(r)); }},
    {"bfloat16", [](Random& r) { return round_to(DType::bfloat16, normal(r)); }},
    {"float16", [](Random& r) { return round_to(DType::float16, normal(r)); }},
    {"subnormal", [](Random& r) { return std::ldexp(normal(r), r() % 2 == 0 ? -128 : -20); }},
    {"underflow", [](Random& r) { return std::ldexp(normal(r), -75); }},
    {"overflow", [](Random& r) { return std::ldexp(normal(r), 62); }},
    {"any exponent", any_exponent},
    {"integers beyond 2^53", [](Random& r) { return std::round(std::ldexp(normal(r), 22)); }},
    {"small integers", [](Random& r) { return static_cast<double>(r() % 7) - 3; }},
    {"mostly zero", [](Random& r) { return r() % 9 == 0 ? normal(r) : -0.; }},
};

TEST(CertifiedMatmul, RoundsOnceWhateverTheDataAndShape) {
  const std::int64_t shapes[][3] = {{1, 1, 1},    {1, 5, 1},     {3, 2, 2},    {7, 9, 31},
                                    {17, 33, 64}, {33, 18, 257}, {2, 3, 1000}, {20, 19, 513}};
  Random random(1);
  for (const Kind& kind : kinds) {
    for (const auto& [m, n, k] : shapes) {
      for (const int transposed : {0, 1, 2, 3}) {
        SCOPED_TRACE(fmt::format("{}, {} x {} x {}, transposed {}", kind.name, m, n, k, transposed));
        Matrix a(m, k, transposed % 2 == 1), b(k, n, transposed / 2 == 1);
        const auto draw = [&](std::int64_t, std::int64_t) { return kind.draw(random); };
        a.fill(draw);
        b.fill(draw);
        EXPECT_EQ(wrong_elements(a, b, multiply(a, b).y), 0);
      }
    }
  }
}

// Rows [x, -x + d]: what is left has nothing to do with the size of the terms, at any depth of cancellation.
TEST(CertifiedMatmul, Cancellation) {
  Random random(2);
  for (const int depth : {0, 10, 20, 30, 50, 80, 110}) {
    const std::int64_t half = 40, k = 2 * half + 4;
    Matrix a(12, k), b(k, 13);
    b.fill([&](std::int64_t, std::int64_t) { return normal(random); });
    for (std::int64_t j = 0; j < 13; ++j)
      for (std::int64_t x = 0; x < half; ++x) b.at(half + x, j) = b.at(x, j);
    for (std::int64_t i = 0; i < 12; ++i) {
      for (std::int64_t x = 0; x < half; ++x) {
        a.at(i, x) = static_cast<float>(normal(random));
        a.at(i, half + (x + i) % half) = 0;
      }
      for (std::int64_t x = 0; x < half; ++x) a.at(i, half + x) = -a.at(i, x);
      for (std::int64_t x = 2 * half; x < k; ++x)
        a.at(i, x) = static_cast<float>(std::ldexp(normal(random), -depth));
    }
    const Product p = multiply(a, b);
    EXPECT_EQ(wrong_elements(a, b, p.y), 0) << "depth " << depth;
    if (depth == 30 || depth == 50) {
      EXPECT_GT(p.certificate.repaired_double_double, 100);
    }
  }
}

// Halfway between float32 neighbours, and a speck beside it.
TEST(CertifiedMatmul, Ties) {
  for (const double speck : {0., 0x1p-40, -0x1p-40, 0x1p-60, -0x1p-60, 0x1p-140, -0x1p-140}) {
    for (const double cancelling : {0., 0x1p40}) {
      for (const double odd : {0., 1.}) {
        for (const double sign : {1., -1.}) {
          const double terms[] = {1, odd * 0x1p-23, 0x1p-24, speck, cancelling, -cancelling};
          Matrix a(1, 6, std::vector<float>(6, 1)), b(6, 1);
          b.fill([&](std::int64_t i, std::int64_t) { return sign * terms[i]; });
          EXPECT_EQ(wrong_elements(a, b, multiply(a, b).y), 0)
              << "speck " << speck << ", cancelling " << cancelling << ", odd " << odd;
        }
      }
    }
  }
  // On a coarse grid float64 is exact and no tie needs repair: products of 12 and 13 bits, sums of 25.
  Random random(3);
  Matrix a(40, 50), b(50, 41);
  a.fill([&](std::int64_t, std::int64_t) { return static_cast<double>(random() % 4096) * 0x1p-9; });
  b.fill([&](std::int64_t, std::int64_t) { return static_cast<double>(random() % 8192) * 0x1p20; });
  const Product p = multiply(a, b);
  EXPECT_EQ(wrong_elements(a, b, p.y), 0);
  EXPECT_EQ(p.certificate.exact, 40 * 41);
}

// The proof of exactness ends where the bound of the partial sums, here 2^e sqrt(6), no longer fits 53 bits.
TEST(CertifiedMatmul, ExactOnlyWhereEveryPartialSumFits) {
  for (const int e : {50, 51, 52, 53, 54, 56, 60}) {
    const float big = std::ldexp(1.f, e);
    Matrix a(1, 3, {big, 1, -big}), b(3, 1, {1, 1, 1});
    const Product p = multiply(a, b);
    EXPECT_EQ(p.y[0], 1) << "2^" << e;
    EXPECT_EQ(p.certificate.exact, e <= 51 ? 1 : 0) << "2^" << e;
  }
}

TEST(CertifiedMatmul, ZerosArePositiveAndUnderflowKeepsItsSign) {
  Matrix a(2, 2, {-0.f, 0, 1, -1}), b(2, 2, {1, 0x1p-149f, 1, 0x1p-149f});
  for (const float y : multiply(a, b).y) EXPECT_EQ(bits(y), bits(0.f));
  Matrix tiny(2, 1, {-0x1p-149f, 0x1p-149f}), half(1, 2, {0.5f, 0.75f});
  const Product p = multiply(tiny, half);
  EXPECT_EQ(bits(p.y[0]), bits(-0.f));  // a tie, to even
  EXPECT_EQ(bits(p.y[2]), bits(0.f));
  EXPECT_EQ(p.y[1], -0x1p-149f);
  EXPECT_EQ(wrong_elements(tiny, half, p.y), 0);
  // What is left of a cancellation decides the sign, far below float32 and below the error bound.
  Matrix cancels(2, 3, {0x1p-90f, -0x1p-90f, 0x1p-140f, 0x1p-90f, -0x1p-90f, -0x1p-140f});
  Matrix ones(3, 1, {0x1p-90f, 0x1p-90f, 0x1p-149f});
  const Product q = multiply(cancels, ones);
  EXPECT_EQ(bits(q.y[0]), bits(0.f));
  EXPECT_EQ(bits(q.y[1]), bits(-0.f));
}

TEST(CertifiedMatmul, OverflowBeginsHalfAnUlpBeyondTheLargest) {
  const float largest = std::numeric_limits<float>::max();
  Matrix a(3, 2, {largest, 0x1p103f, largest, 0x1.fffffep102f, -largest, -0x1p103f}), b(2, 1, {1, 1});
  EXPECT_THAT(multiply(a, b).y, testing::ElementsAre(inf, largest, -inf));
}

TEST(CertifiedMatmul, InfinitiesAndNanStayInTheirRowsAndColumns) {
  Random random(4);
  for (const int transposed : {0, 3}) {
    Matrix a(20, 300, transposed % 2 == 1), b(300, 30, transposed / 2 == 1);
    a.fill([&](std::int64_t, std::int64_t) { return normal(random); });
    b.fill([&](std::int64_t, std::int64_t) { return normal(random); });
    a.at(1, 7) = inf;
    a.at(3, 299) = nan;
    a.at(5, 0) = inf;
    a.at(5, 1) = -inf;
    for (std::int64_t k = 0; k < 300; ++k) a.at(9, k) = 0;
    b.at(7, 4) = 0;  // inf * 0
    b.at(7, 6) = -inf;
    b.at(8, 6) = inf;
    b.at(2, 8) = -nan;
    b.at(3, 11) = -inf;
    for (std::int64_t k = 0; k < 300; ++k) b.at(k, 13) = 0;
    const Product p = multiply(a, b);
    EXPECT_EQ(wrong_elements(a, b, p.y), 0);
    // 3 rows and 3 columns; a row of zeros elsewhere is exact.
    EXPECT_GE(p.certificate.certified, (20 - 3) * (30 - 3) - 60);
    EXPECT_EQ(p.certificate.repaired_exact, 3 * 30 + 3 * 20 - 3 * 3);
  }
}

TEST(CertifiedMatmul, EmptyShapes) {
  Matrix none(3, 0), left(0, 4), column(0, 2), b(4, 5), right(4, 0);
  b.fill([](std::int64_t, std::int64_t) { return nan; });
  const Product p = multiply(none, column);
  for (const float y : p.y) EXPECT_EQ(bits(y), bits(0.f));
  EXPECT_EQ(p.certificate.exact, 6);
  EXPECT_TRUE(multiply(left, b).y.empty());
  EXPECT_TRUE(multiply(Matrix(2, 4), right).y.empty());
}

// More than one block in every direction; sampled, with all the borders.
TEST(CertifiedMatmul, BlocksMeet) {
  Random random(5);
  Matrix a(1100, 300, true), b(300, 1050);
  a.fill([&](std::int64_t, std::int64_t) { return normal(random); });
  b.fill([&](std::int64_t, std::int64_t) { return normal(random); });
  const Product p = multiply(a, b);
  const auto check = [&](std::int64_t i, std::int64_t j) {
    ASSERT_EQ(p.y[static_cast<std::size_t>(i * 1050 + j)], truth(a.view, b.view, i, j)) << i << ", " << j;
  };
  for (std::int64_t i = 0; i < 1100; ++i)
    for (const std::int64_t j : {0, 15, 16, 1023, 1024, 1049}) check(i, j);
  for (std::int64_t j = 0; j < 1050; ++j)
    for (const std::int64_t i : {0, 549, 550, 1023, 1024, 1099}) check(i, j);
  EXPECT_GT(p.certificate.repaired_double_double, 0);
}

std::string message(const MatrixView& a, const MatrixView& b, std::size_t elements) {
  std::vector<float> y(elements);
  try {
    certified_matmul(a, b, y);
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}

TEST(CertifiedMatmul, RefusesWhatDoesNotFit) {
  const std::vector<float> x(100);
  const MatrixView a = {x.data(), 2, 3, 3};
  EXPECT_EQ(message(a, {x.data(), 4, 5, 5}, 10),
            "certified_matmul: a is 2 x 3, b is 4 x 5; a's columns must be b's rows");
  EXPECT_EQ(message(a, {x.data(), 3, 5, 5}, 11), "certified_matmul: y has 11 elements, expected 2 x 5");
  EXPECT_EQ(message(a, {x.data(), 3, 5, 4}, 10),
            "certified_matmul: b is 3 x 5 with leading dimension 4; expected at least 5");
  EXPECT_EQ(message({x.data(), 2, 3, 1, true}, {x.data(), 3, 5, 5}, 10),
            "certified_matmul: a is 2 x 3, stored transposed, with leading dimension 1; expected at least 2");
  EXPECT_EQ(message({x.data(), -2, 3, 3}, {x.data(), 3, 5, 5}, 10),
            "certified_matmul: a is -2 x 3; no extent can be negative");
  EXPECT_EQ(message(a, {x.data(), 3, 5, 5}, 10), "no error");
}

}  // namespace
}  // namespace assay::certified_matmul_test
