#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "faulty_pair.h"

namespace assay::diagnosis_order_test {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

void expect_order(const Shape& shape, const std::function<std::int64_t(std::int64_t)>& source,
                  const std::string& text) {
  for (const DType d : training_dtypes) {
    Random random(11);
    const Values r = random.normals(element_count(shape));
    FaultyPair pair(d, shape, r, map_index(r, source));
    const auto found = pair.noise(noise_of(d)).diagnose();
    EXPECT_THAT(first_of(found), StartsWith(text)) << name(d) << ' ' << to_string(shape);
    for (const Diagnosis& f : found) EXPECT_LE(f.residual, 1) << sentence(f);
  }
}

// Slice j of the middle dimension from slice source(j).
std::function<std::int64_t(std::int64_t)> along(std::int64_t count, std::int64_t inner,
                                                std::function<std::int64_t(std::int64_t)> source) {
  return [=](std::int64_t at) {
    const std::int64_t j = at / inner % count, from = source(j);
    return from < 0 ? -1 : at + (from - j) * inner;
  };
}

TEST(DiagnosisOfOrder, Rolled) {
  expect_order({40, 30}, along(40, 30, [](auto j) { return (j + 37) % 40; }),
               "permuted: the rows are rolled by 3: index 3 holds the reference's 0");
  expect_order({40, 30}, along(30, 1, [](auto j) { return (j + 1) % 30; }),
               "permuted: the columns are rolled by -1: index 29 holds the reference's 0");
  expect_order({6, 16, 10}, along(16, 10, [](auto j) { return (j + 8) % 16; }),
               "permuted: the slices of dim 1 are rolled by 8");
  expect_order({1000}, along(1000, 1, [](auto j) { return (j + 990) % 1000; }),
               "permuted: the elements are rolled by 10");
}

TEST(DiagnosisOfOrder, Reversed) {
  expect_order({40, 30}, along(40, 30, [](auto j) { return 39 - j; }),
               "permuted: the rows are in reversed order");
  expect_order({300}, along(300, 1, [](auto j) { return 299 - j; }),
               "permuted: the elements are in reversed order");
  expect_order({4, 9, 30}, along(9, 30, [](auto j) { return 8 - j; }),
               "permuted: the slices of dim 1 are in reversed order");
}

TEST(DiagnosisOfOrder, Shifted) {
  expect_order(
      {40, 30}, along(40, 30, [](auto j) { return j - 2; }),
      "shifted: the rows are shifted by 2: index i holds the reference's i - 2; the first 2 are zero");
  expect_order(
      {40, 30}, along(30, 1, [](auto j) { return j == 29 ? -1 : j + 1; }),
      "shifted: the columns are shifted by -1: index i holds the reference's i + 1; the last 1 are zero");
  expect_order({4, 32, 8}, along(32, 8, [](auto j) { return j == 0 ? 0 : j - 1; }),
               "shifted: the slices of dim 1 are shifted by 1: index i holds the reference's i - 1; the "
               "first 1 hold something else");
  expect_order(
      {40, 30}, [](auto at) { return at - 7; }, "shifted: the elements in memory are shifted by 7");
}

TEST(DiagnosisOfOrder, Transposed) {
  expect_order(
      {24, 24}, [](auto at) { return at % 24 * 24 + at / 24; }, "transposed: the matrix is transposed");
  expect_order(
      {5, 16, 16}, [](auto at) { return at / 256 * 256 + at % 16 * 16 + at / 16 % 16; },
      "transposed: dims 1 and 2 are transposed");
  // The transpose of [20, 30] is [30, 20] in memory.
  expect_order(
      {20, 30}, [](auto at) { return at % 20 * 30 + at / 20; },
      "transposed: holds the elements in the order of the transpose: dims 0 and 1");
  // [S, H, D] written as [H, S, D].
  expect_order(
      {12, 4, 16}, [](auto at) { return (at / 16 % 12 * 4 + at / 16 / 12) * 16 + at % 16; },
      "transposed: holds the elements in the order of the transpose: dims 0 and 1");
}

TEST(DiagnosisOfOrder, Interleaved) {
  // Gate and up halves, one row of each by turns.
  expect_order({32, 20}, along(32, 20, [](auto j) { return j % 2 * 16 + j / 2; }),
               "permuted: interleaved: row i holds the reference's (i % 2) * 16 + i / 2");
  expect_order({20, 32}, along(32, 1, [](auto j) { return j % 16 * 2 + j / 16; }),
               "permuted: interleaved: column i holds the reference's (i % 16) * 2 + i / 16");
  // q, k and v of four heads of size 8: [3, 4, 8] as [4, 3, 8].
  expect_order({10, 96}, along(96, 1, [](auto j) { return (j / 8 % 3 * 4 + j / 24) * 8 + j % 8; }),
               "permuted: interleaved: block of 8 columns i holds the reference's (i % 3) * 4 + i / 3");
  // Halves as pairs within each head of 16.
  expect_order(
      {10, 64}, along(64, 1, [](auto j) { return j / 16 * 16 + j % 2 * 8 + j % 16 / 2; }),
      "permuted: interleaved: within each group of 16, column i holds the reference's (i % 2) * 8 + i / 2");
}

TEST(DiagnosisOfOrder, Permuted) {
  expect_order({40, 30}, along(40, 30, [](auto j) { return j == 3    ? 17
                                                           : j == 17 ? 3
                                                                     : j; }),
               "permuted: rows 3 and 17 are swapped");
  expect_order({40, 30}, along(30, 1, [](auto j) { return j == 3    ? 17
                                                          : j == 17 ? 3
                                                                    : j; }),
               "permuted: columns 3 and 17 are swapped");
  expect_order({4, 6, 30}, along(6, 30, [](auto j) { return j == 1   ? 2
                                                            : j == 2 ? 1
                                                                     : j; }),
               "permuted: slices of dim 1 1 and 2 are swapped");
  // Zigzag halves of context parallelism in plain order.
  expect_order({64, 8},
               along(64, 8,
                     [](auto j) {
                       return (std::array{0, 3, 1, 2})[static_cast<std::size_t>(j / 16)] * 16 + j % 16;
                     }),
               "permuted: 4 blocks of 16 rows hold the reference's 0 3 1 2");
  expect_order({256},
               along(256, 1,
                     [](auto j) {
                       return (std::array{0, 3, 1, 2})[static_cast<std::size_t>(j / 64)] * 64 + j % 64;
                     }),
               "permuted: 4 blocks of 64 elements hold the reference's 0 3 1 2");
  std::vector<std::int64_t> order(50);
  std::iota(order.begin(), order.end(), 0);
  Random random(12);
  for (std::size_t i = 49; i > 0; --i)
    std::swap(order[i], order[static_cast<std::size_t>(random.below(static_cast<std::int64_t>(i) + 1))]);
  expect_order({50, 40}, along(50, 40, [&](auto j) { return order[static_cast<std::size_t>(j)]; }),
               "permuted: ");
}

TEST(DiagnosisOfOrder, Repeated) {
  expect_order({64, 8}, along(64, 8, [](auto j) { return j % 32; }),
               "repeated: 2 blocks of 32 rows hold the reference's 0 0");
}

// q or k of [T, H, D] with RoPE at position(t).
Values rope(const Values& x, std::int64_t T, std::int64_t H, std::int64_t D, double base, bool interleaved,
            const std::function<std::int64_t(std::int64_t)>& position) {
  Values y = x;
  for (std::int64_t row = 0; row < T * H; ++row) {
    for (std::int64_t j = 0; j < D / 2; ++j) {
      const auto a = static_cast<std::size_t>(row * D + (interleaved ? 2 * j : j)),
                 b = a + static_cast<std::size_t>(interleaved ? 1 : D / 2);
      const double angle = static_cast<double>(position(row / H)) *
                           std::pow(base, -2.0 * static_cast<double>(j) / static_cast<double>(D));
      y[a] = std::cos(angle) * x[a] - std::sin(angle) * x[b];
      y[b] = std::cos(angle) * x[b] + std::sin(angle) * x[a];
    }
  }
  return y;
}

TEST(DiagnosisOfOrder, RopePosition) {
  const std::int64_t T = 16, H = 4, D = 64;
  struct Fault {
    std::function<std::int64_t(std::int64_t)> position;
    std::string text;
  };
  const Fault faults[] = {
      {[](auto t) { return t + 4; }, "every position is 4 too large"},
      {[](auto t) { return t + 4096; }, "every position is 4096 too large"},
      {[](auto t) { return t % 8; }, "index 8..15 of dim 0 is at a position 8 too small"},
      {[](auto) { return 0; }, "all of dim 0 have one position: index i is i too small"},
      {[](auto t) { return 2 * t; }, "index i of dim 0 is i too large, as if rotated twice"},
      {[](auto t) { return t == 5 ? 6 : t; }, "index 5 of dim 0 is at a position 1 too large"},
  };
  for (const DType d : training_dtypes) {
    for (const double base : {1e4, 1e6}) {
      for (const bool interleaved : {false, true}) {
        for (const Fault& fault : faults) {
          Random random(13);
          const Values x = random.normals(T * H * D);
          FaultyPair pair(d, {T, H, D}, rope(x, T, H, D, base, interleaved, [](auto t) { return t; }),
                          rope(x, T, H, D, base, interleaved, fault.position));
          pair.context.allowed.atol *= 4;
          const std::string first = first_of(pair.noise(noise_of(d)).diagnose());
          EXPECT_THAT(first, StartsWith("rope_position: " + fault.text)) << name(d);
          EXPECT_THAT(first, HasSubstr(base == 1e4 ? "base 10000" : "base 1e+06"));
          EXPECT_THAT(first, HasSubstr(interleaved ? "pairs (2j, 2j+1)" : "the two halves"));
        }
      }
    }
  }
}

}  // namespace
}  // namespace assay::diagnosis_order_test
