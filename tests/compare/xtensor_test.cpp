#include "assay/golden/xtensor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <xtensor/xbuilder.hpp>
#include <xtensor/xmanipulation.hpp>
#include <xtensor/xmath.hpp>
#include <xtensor/xview.hpp>

#include "assay/compare/diff.h"
#include "assay/compare/matches_golden.h"

namespace assay {

// An array of nobody's library that tells how much of it was asked for at once.
struct WatchedArray {
  TensorSource elements;
  std::int64_t* longest;
};
template <>
struct ArrayOf<WatchedArray> {
  static TensorSource source(const WatchedArray& array) {
    return {array.elements.dtype(), array.elements.shape(),
            TensorSource::Window([array](std::int64_t begin, std::int64_t count) {
              *array.longest = std::max(*array.longest, count);
              return array.elements.window(begin, count);
            })};
  }
  static Tensor tensor(const WatchedArray& array) { return source(array).whole(); }
};

}  // namespace assay

namespace assay::xtensor_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

DiffOptions bitwise() {
  DiffOptions options;
  options.policies = {load_policy("bitwise")};
  return options;
}

// [64, 48], a value for each element.
xt::xarray<float> numbers() {
  return xt::arange<float>(64 * 48).reshape({64, 48});
}

TEST(ArraysInMemory, AreComparedInAnyLayout) {
  const xt::xarray<float> y = numbers();
  const xt::xarray<float, xt::layout_type::column_major> fortran = y;
  const xt::xarray<float> stored_transposed = xt::transpose(y);
  const xt::xarray<float> row = {1, 2, 3}, rows = {{1, 2, 3}, {1, 2, 3}};
  const Report report = diff({{"fortran", fortran},
                              {"transposed", xt::transpose(stored_transposed)},
                              {"every other", xt::view(y, xt::range(0, 64, 2))},
                              {"broadcast", xt::broadcast(row, {2, 3})}},
                             {{"fortran", y},
                              {"transposed", y},
                              {"every other", to_tensor(xt::view(y, xt::range(0, 64, 2)))},
                              {"broadcast", rows}},
                             bitwise());
  EXPECT_EQ(report.count(Verdict::passed), 4) << report.summary();
  EXPECT_EQ(report.exit_status(), 0);
}

TEST(ArraysInMemory, ADifferenceHasItsPlaceInTheView) {
  const xt::xarray<float> y = numbers();
  xt::xarray<float, xt::layout_type::column_major> wrong = y;
  wrong(17, 5) += 1;
  const Report report = diff({{"layers.0@phase=backward,slot=grad,arg=weight", wrong}},
                             {{"layers.0@phase=backward,slot=grad,arg=weight", y}}, bitwise());
  ASSERT_EQ(report.findings.size(), 1u);
  const Finding& f = report.findings.front();
  EXPECT_EQ(f.verdict, Verdict::failed);
  EXPECT_EQ(f.id.phase, Phase::backward);
  EXPECT_EQ(f.metrics->max_abs_at, 17 * 48 + 5);
}

TEST(ArraysInMemory, NamesAreUnique) {
  const xt::xarray<float> y = numbers();
  EXPECT_THAT(
      [&] {
        diff({{"y", y}, {"y", y}}, {{"y", y}}, bitwise());
      },
      testing::ThrowsMessage<Error>(HasSubstr("actual: two tensors are called 'y'")));
}

TEST(ArraysInMemory, AreMatchedByGoldenValues) {
  const xt::xarray<float> x = xt::sin(numbers()), w = 1.f + xt::arange<float>(48) / 64.f;
  const xt::xarray<float> rstd = 1.f / xt::sqrt(xt::mean(x * x, {1}) + 1e-5f);
  const xt::xarray<float> y = x * xt::view(rstd, xt::all(), xt::newaxis()) * w;
  const xt::xarray<float, xt::layout_type::column_major> fortran = y;
  const auto golden = MatchesGolden("rms_norm", {{"x", x}, {"weight", w}}, {{"eps", 1e-5}});
  EXPECT_THAT(y, golden);
  EXPECT_THAT(fortran, golden);
  EXPECT_THAT(xt::xarray<float>(y * 1.01f), Not(golden));
  const xt::xarray<float> of_transposed = xt::transpose(x);
  EXPECT_THAT(
      y, MatchesGolden("rms_norm", {{"x", xt::transpose(of_transposed)}, {"weight", w}}, {{"eps", 1e-5}}));
}

// 2^18 elements in Fortran order: what is judged is read window by window, never copied as a whole.
TEST(ArraysInMemory, AreNeverPackedAsAWhole) {
  const xt::xarray<float> x = xt::arange<float>(1 << 18).reshape({512, 512});
  const xt::xarray<float, xt::layout_type::column_major> y = -x;
  std::int64_t longest = 0;
  const WatchedArray watched = {y, &longest};
  EXPECT_THAT(watched, MatchesGolden("neg", {{"x", x}}));
  EXPECT_GT(longest, 0);
  EXPECT_LE(longest, 1 << 16);
  longest = 0;
  EXPECT_EQ(diff({{"y", watched}}, {{"y", xt::xarray<float>(y)}}, bitwise()).exit_status(), 0);
  EXPECT_GT(longest, 0);
  EXPECT_LE(longest, 1 << 16);
}

TEST(ArraysInMemory, GoldenOutputsAreArrays) {
  const xt::xarray<double> x = {{0, 0}, {1, 1}};
  const Operator& softmax = find_operator("softmax");
  const std::vector<NamedTensor> inputs = {{"x", x}};
  const auto outputs = compute_golden(softmax, inputs, complete_attributes(softmax, {}), Level::fp64);
  const auto y = as_xtensor<double>(output_named(outputs, "y"));
  EXPECT_THAT(y, ElementsAre(0.5, 0.5, 0.5, 0.5));
  EXPECT_EQ(y.shape(1), 2u);
}

}  // namespace
}  // namespace assay::xtensor_test
