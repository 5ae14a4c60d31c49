#include "assay/compare/measure/error_map.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "assay/compare/diff.h"
#include "assay/compare/report/html/html.h"
#include "memory_dump.h"

namespace assay::error_map_test {
namespace {

constexpr double nan = std::numeric_limits<double>::quiet_NaN();

// Zeros, and one kind of error in a block.
Tensor with_block(std::int64_t rows, std::int64_t columns, std::int64_t row, std::int64_t column,
                  double value) {
  std::vector<double> values(static_cast<std::size_t>(rows * columns));
  for (std::int64_t r = row; r < row + 16; ++r) {
    for (std::int64_t c = column; c < column + 16; ++c)
      values[static_cast<std::size_t>(r * columns + c)] = value;
  }
  return Tensor::from_values(DType::float32, {rows, columns}, values);
}

TEST(ErrorMap, FindsABlock) {
  const Tensor actual = with_block(256, 1000, 48, 80, 2), reference = Tensor(DType::float32, {256, 1000});
  const ErrorMap map = error_map(actual, reference, {0.5, 0, {}});
  EXPECT_EQ(map.rows, 256);
  EXPECT_EQ(map.columns, 1000);
  EXPECT_EQ(map.grid_rows, 64);
  EXPECT_EQ(map.grid_columns, 64);
  EXPECT_EQ(map.outside, 256);
  EXPECT_EQ(map.first_row, 48);
  EXPECT_EQ(map.last_row, 63);
  EXPECT_EQ(map.first_column, 80);
  EXPECT_EQ(map.last_column, 95);
  EXPECT_EQ(extent_of_errors(map),
            "256 outside, within rows 48 to 63, columns 80 to 95: all of the elements there.");
  for (int r = 0; r < 64; ++r) {
    for (int c = 0; c < 64; ++c) {
      const bool meets = map.row_of(r) <= 63 && map.row_of(r + 1) > 48 && map.column_of(c) <= 95 &&
                         map.column_of(c + 1) > 80;
      EXPECT_EQ(map.cells[static_cast<std::size_t>(64 * r + c)], meets ? 4.0 : 0.0) << r << " " << c;
    }
  }
}

TEST(ErrorMap, CellsTileTheMatrix) {
  for (const std::int64_t extent : {1, 2, 63, 64, 65, 100, 127, 128, 1000}) {
    const Tensor t(DType::float32, {extent, 3});
    const ErrorMap map = error_map(t, t, {1, 0, {}});
    EXPECT_EQ(map.grid_rows, std::min<std::int64_t>(extent, 64));
    EXPECT_EQ(map.row_of(0), 0);
    EXPECT_EQ(map.row_of(map.grid_rows), extent);
    for (int r = 0; r < map.grid_rows; ++r) EXPECT_LT(map.row_of(r), map.row_of(r + 1)) << extent;
  }
}

TEST(ErrorMap, TheWorstElementsComeFirstAndTiesByPlace) {
  std::vector<double> actual(100), reference(100);
  for (std::size_t i = 0; i < 100; ++i) actual[i] = i % 10 == 3 ? static_cast<double>(i) : 0;
  actual[50] = nan;
  actual[7] = 93;
  const ErrorMap map = error_map(float32(actual), float32(reference), {1, 0, {}});
  std::vector<std::int64_t> at;
  for (const ErrorMap::Element& e : map.worst) at.push_back(e.at);
  EXPECT_EQ(at, (std::vector<std::int64_t>{50, 7, 93, 83, 73, 63, 53, 43}));
  EXPECT_EQ(map.worst[0].ratio, infinity);
  EXPECT_EQ(map.worst[1].ratio, 93);
  EXPECT_EQ(map.worst[1].actual, 93);
  EXPECT_EQ(map.worst[1].reference, 0);
}

TEST(ErrorMap, WhatIsEqualOrForcedByTheDtypeIsNoError) {
  const Tensor actual = tensor(DType::float16, {nan, infinity, -infinity, infinity, infinity, 1, -0.0});
  const Tensor reference = tensor(DType::float64, {nan, infinity, -infinity, 1e6, 1, nan, 0});
  const ErrorMap map = error_map(actual, reference, {1, 1, {}});
  EXPECT_EQ(map.outside, 2);
  EXPECT_EQ(map.cells, (std::vector<double>{0, 0, 0, 0, infinity, infinity, 0}));
}

TEST(ErrorMap, WithoutAnAllowedErrorCellsAreErrors) {
  const Tensor actual = Tensor::from_indices({4}, std::vector<std::int64_t>{1, 2, 3, (1LL << 60) + 1});
  const Tensor reference = Tensor::from_indices({4}, std::vector<std::int64_t>{1, 2, 7, 1LL << 60});
  const ErrorMap map = error_map(actual, reference, {});
  EXPECT_FALSE(map.in_units_of_allowed);
  EXPECT_EQ(map.outside, 2);
  EXPECT_EQ(map.cells, (std::vector<double>{0, 0, 4, 1})) << "exact, where float64 would see no difference";
  EXPECT_EQ(shades(map), "0076") << "any difference is outside";
  EXPECT_THAT(extent_of_errors(map), testing::EndsWith("No error is allowed: shades go by the largest."));
}

TEST(ErrorMap, TakesABoundPerElement) {
  const std::vector<double> bound = {1, 0, 4};
  const ErrorMap map = error_map(float32({1, 1, 1}), float32({0, 0, 0}), {0, 0, bound});
  EXPECT_EQ(map.cells, (std::vector<double>{1, infinity, 0.25}));
  EXPECT_EQ(map.outside, 1);
}

TEST(ErrorMap, IsTheSameForAnyNumberOfThreads) {
  const Tensor reference(DType::float32, {300, 1001});
  std::vector<double> values(300 * 1001);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<double>(i * 2654435761u % 1000);
  const Tensor actual = Tensor::from_values(DType::float32, {300, 1001}, values);
  const ErrorMap one = error_map(actual, reference, {10, 0, {}}, 1),
                 four = error_map(actual, reference, {10, 0, {}}, 4);
  EXPECT_EQ(one.cells, four.cells);
  EXPECT_EQ(one.outside, four.outside);
  ASSERT_EQ(one.worst.size(), 8u);
  for (std::size_t i = 0; i < 8; ++i) EXPECT_EQ(one.worst[i].at, four.worst[i].at);
}

// A file may be cut short after it was measured.
TEST(ErrorMap, TroubleInAThreadIsThrownToTheCaller) {
  const TensorSource damaged(DType::float32, {1 << 20}, [](std::int64_t begin, std::span<std::byte>) {
    if (begin > 0) throw Error("damaged at {}", begin);
  });
  for (const int threads : {1, 4}) {
    try {
      error_map(damaged, damaged, {1, 0, {}}, threads);
      ADD_FAILURE();
    } catch (const Error& problem) {
      EXPECT_STREQ(problem.what(), "damaged at 65536") << "the first of them, with any number of threads";
    }
  }
}

TEST(ErrorMap, ScalarsVectorsAndNothing) {
  const Tensor one = Tensor::from_values(DType::float32, {}, std::vector<double>{1});
  EXPECT_EQ(error_map(one, Tensor(DType::float32, {}), {1, 0, {}}).cells, (std::vector<double>{1}));
  EXPECT_EQ(error_map(float32({}), float32({}), {1, 0, {}}).cells.size(), 0u);
  const Tensor none(DType::float32, {3, 0});
  EXPECT_EQ(error_map(none, none, {1, 0, {}}).cells.size(), 0u);
}

// ---- as diff asks for it

TEST(ErrorMap, OnlyOfTheFirstThatDoNotPass) {
  MemoryDump a("a"), r("r");
  for (const char* module : {"good", "bad", "worse", "late"}) {
    a.add(module, float32({1, module == std::string("good") ? 2. : 3.}));
    r.add(module, float32({1, 2}));
  }
  DiffOptions options;
  options.policies = {load_policy("telechat3"), load_policy("torch")};
  for (const Finding& f : diff(a, r, options).findings) EXPECT_FALSE(f.error_map) << "not asked for";
  options.error_maps = 2;
  const Report report = diff(a, r, options);
  EXPECT_FALSE(report.findings[0].error_map);
  ASSERT_TRUE(report.findings[1].error_map);
  EXPECT_TRUE(report.findings[2].error_map);
  EXPECT_FALSE(report.findings[3].error_map);
  EXPECT_EQ(report.findings[1].error_map->outside, report.findings[1].metrics->over);
  EXPECT_EQ(report.findings[1].error_map->worst.front().ratio, report.findings[1].ratio);
}

}  // namespace
}  // namespace assay::error_map_test
