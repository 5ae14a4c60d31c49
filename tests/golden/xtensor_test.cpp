#include "assay/golden/xtensor.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <xtensor/xbuilder.hpp>
#include <xtensor/xmanipulation.hpp>
#include <xtensor/xmath.hpp>
#include <xtensor/xstrided_view.hpp>
#include <xtensor/xvectorize.hpp>
#include <xtensor/xview.hpp>

namespace assay::xtensor_test {
namespace {

const std::vector<double> six = {1, 2, 3, 4, 5, 6};

TEST(XTensor, SeesTheElementsInPlace) {
  const Tensor t = Tensor::from_values(DType::float32, {2, 3}, six);
  const auto x = as_xtensor<float>(t);
  EXPECT_EQ(x.shape(0), 2u);
  EXPECT_EQ(x.shape(1), 3u);
  EXPECT_EQ(x(1, 0), 4);
  EXPECT_EQ(static_cast<const void*>(&x(0, 0)), t.bytes().data());
}

TEST(XTensor, ExpressionsComeBackInCOrder) {
  const Tensor t = Tensor::from_values(DType::float64, {2, 3}, six);
  const auto x = as_xtensor<double>(t);
  const Tensor sums = to_tensor(x + x);
  EXPECT_EQ(sums.dtype(), DType::float64);
  EXPECT_EQ(sums.values(), (std::vector<double>{2, 4, 6, 8, 10, 12}));
  const Tensor transposed = to_tensor(xt::transpose(x));
  EXPECT_EQ(transposed.shape(), (Shape{3, 2}));
  EXPECT_EQ(transposed.values(), (std::vector<double>{1, 4, 2, 5, 3, 6}));
  EXPECT_EQ(to_tensor(xt::view(x, 1)).shape(), Shape{3});
  EXPECT_EQ(to_tensor(x > 3.).dtype(), DType::boolean);
  EXPECT_EQ(to_tensor(x > 3.).values(), (std::vector<double>{0, 0, 0, 1, 1, 1}));
}

TEST(XTensor, ScalarsAndEmptyTensors) {
  const Tensor scalar(DType::float64, {}), empty(DType::float32, {0, 3});
  EXPECT_EQ(as_xtensor<double>(scalar)(), 0);
  EXPECT_EQ(to_tensor(as_xtensor<float>(empty)).shape(), (Shape{0, 3}));
}

TEST(XTensor, RefusesAnotherElementType) {
  const Tensor t = Tensor::from_values(DType::bfloat16, {6}, six);
  EXPECT_THROW(as_xtensor<float>(t), Error);
  const Tensor narrower(DType::float32, {2});
  EXPECT_THROW(as_xtensor<double>(narrower), Error);
  EXPECT_EQ(as_xtensor<std::uint16_t>(t)(0), 0x3f80);
}

TEST(XTensor, RefusesUnalignedBytes) {
  const auto owner = std::make_shared<std::vector<std::byte>>(16);
  const Tensor t(DType::float32, {2}, std::span<const std::byte>(*owner).subspan(1, 8), owner);
  EXPECT_THROW(as_xtensor<float>(t), Error);
}

xt::xarray<float> numbers() {
  return xt::arange<float>(24).reshape({2, 3, 4});
}

TEST(XTensor, AnArrayInCOrderIsATensorInPlace) {
  const xt::xarray<float> x = numbers();
  const Tensor t(x);
  EXPECT_EQ(static_cast<const void*>(t.bytes().data()), x.data());
  EXPECT_EQ(t.shape(), (Shape{2, 3, 4}));
  const Tensor rows(xt::view(x, 1));
  EXPECT_EQ(static_cast<const void*>(rows.bytes().data()), &x(1, 0, 0));
  EXPECT_EQ(rows.shape(), (Shape{3, 4}));
}

// Whatever the layout, the source has the elements in C order, and sees what is written into the array
// afterwards: there is no copy.
template <class E>
void expect_in_place(const E& view, float& element, std::int64_t position) {
  const TensorSource source(view);
  const Tensor copy = to_tensor(view);
  EXPECT_EQ(source.shape(), copy.shape());
  EXPECT_EQ(source.whole().values(), copy.values());
  std::vector<double> in_windows;
  for (std::int64_t begin = 0; begin < source.size(); begin += 5) {
    const auto part = source.window(begin, std::min<std::int64_t>(5, source.size() - begin)).values();
    in_windows.insert(in_windows.end(), part.begin(), part.end());
  }
  EXPECT_EQ(in_windows, copy.values());
  element = 1000;
  EXPECT_EQ(source.value(position), 1000);
}

TEST(XTensor, EveryLayoutIsReadInPlace) {
  auto x = numbers();
  expect_in_place(xt::transpose(x), x(0, 1, 0), 2);
  x = numbers();
  expect_in_place(xt::view(x, xt::all(), xt::range(0, 3, 2), xt::range(1, 4)), x(0, 2, 1), 3);
  x = numbers();
  expect_in_place(xt::view(x, xt::all(), xt::all(), xt::range(3, xt::placeholders::_, -1)), x(0, 0, 0), 3);
  xt::xarray<float, xt::layout_type::column_major> fortran = numbers();
  expect_in_place(fortran, fortran(0, 0, 1), 1);
  xt::xarray<float> row = {1, 2, 3};
  expect_in_place(xt::broadcast(row, {2, 3}), row(2), 5);
  xt::xarray<float> column = xt::arange<float>(3).reshape({3, 1});
  expect_in_place(xt::broadcast(column, {2, 3, 4}), column(1, 0), 16);
  std::vector<float> own(24);
  std::iota(own.begin(), own.end(), 0.f);
  auto flat = xt::adapt(own);
  expect_in_place(xt::strided_view(flat, std::vector<std::size_t>{3, 2}, std::vector<std::ptrdiff_t>{8, 2}, 1,
                                   xt::layout_type::dynamic),
                  own[11], 3);
}

TEST(XTensor, WhatHasNoStridesIsEvaluated) {
  const auto x = numbers();
  const xt::xarray<float, xt::layout_type::column_major> fortran = x;
  EXPECT_EQ(Tensor(xt::ravel(fortran)).values(), Tensor(x).values());
  EXPECT_EQ(Tensor(xt::view(x, 0, xt::keep(2, 0), 1)).values(), (std::vector<double>{9, 1}));
  EXPECT_EQ(TensorSource(xt::broadcast(x + x, {2, 2, 3, 4})).value(47), 46);
  std::vector<bool> bits = {true, false, true};
  const auto adapted = xt::adapt(bits, std::vector<std::size_t>{3});
  EXPECT_EQ(Tensor(adapted).dtype(), DType::boolean);
  EXPECT_EQ(Tensor(adapted).values(), (std::vector<double>{1, 0, 1}));
}

TEST(XTensor, ElementsOfEveryIntegerType) {
  const auto expect = [](const auto& x, DType dtype, std::vector<double> values) {
    EXPECT_EQ(Tensor(x).dtype(), dtype);
    EXPECT_EQ(Tensor(x).values(), values);
    EXPECT_EQ(to_tensor(x).values(), values);
  };
  expect(xt::xarray<long>{1, -2}, DType::int64, {1, -2});
  expect(xt::xarray<long long>{1, -2}, DType::int64, {1, -2});
  expect(xt::xarray<unsigned long long>{1, 2}, DType::uint64, {1, 2});
  expect(xt::xarray<signed char>{1, -2}, DType::int8, {1, -2});
  expect(xt::xarray<char>{1, 2}, std::is_signed_v<char> ? DType::int8 : DType::uint8, {1, 2});
  expect(xt::xarray<bool>{true, false}, DType::boolean, {1, 0});
}

TEST(XTensor, AnRvalueIsKept) {
  const auto source = [] {
    xt::xarray<float, xt::layout_type::column_major> x = numbers();
    return TensorSource(std::move(x));
  }();
  EXPECT_EQ(source.value(13), 13);
  const Tensor tensor(numbers());
  EXPECT_EQ(tensor.value(13), 13);
  const TensorSource turned(xt::transpose(numbers()));
  EXPECT_EQ(turned.value(1), 12);
  const TensorSource repeated(xt::broadcast(xt::xarray<float>{1, 2, 3}, {2, 3}));
  EXPECT_EQ(repeated.whole().values(), (std::vector<double>{1, 2, 3, 1, 2, 3}));
}

TEST(XTensor, WhatIsComputedIsComputedOnce) {
  int calls = 0;
  const xt::xarray<double> x = {1, 2, 3, 4};
  const TensorSource source(xt::make_lambda_xfunction(
      [&calls](double v) {
        ++calls;
        return v * v;
      },
      x));
  EXPECT_EQ(source.whole().values(), (std::vector<double>{1, 4, 9, 16}));
  EXPECT_EQ(source.value(3), 16);
  EXPECT_EQ(calls, 4);
}

TEST(XTensor, BitsOfAnotherDtype) {
  const xt::xarray<std::uint16_t> bits = {0x3f80, 0xc000};
  const TensorSource source = with_dtype(DType::bfloat16, bits);
  EXPECT_EQ(source.whole().values(), (std::vector<double>{1, -2}));
  EXPECT_EQ(static_cast<const void*>(source.whole().bytes().data()), bits.data());
  EXPECT_THROW(with_dtype(DType::float8_e4m3fn, bits), Error);
}

// Every part of every order of a box against the elements themselves, one by one.
TEST(XTensor, WindowsOfAnyLayoutHoldTheElements) {
  const xt::xarray<float> box = xt::arange<float>(3 * 4 * 5 * 2).reshape({3, 4, 5, 2});
  std::vector<std::size_t> order = {0, 1, 2, 3};
  do {
    const auto turned = xt::transpose(box, order);
    const auto view =
        xt::strided_view(turned, {xt::ellipsis(), xt::range(xt::placeholders::_, xt::placeholders::_, -1)});
    const TensorSource source(view);
    const xt::xarray<float> copy = view;
    for (std::int64_t begin = 0; begin < source.size(); begin += 7) {
      for (std::int64_t count : {std::int64_t{1}, std::int64_t{13}, source.size() - begin}) {
        count = std::min(count, source.size() - begin);
        const std::vector<double> window = source.window(begin, count).values();
        ASSERT_TRUE(std::equal(window.begin(), window.end(), copy.data() + begin))
            << to_string(Shape(order.begin(), order.end())) << " from " << begin << ", " << count;
      }
    }
  } while (std::ranges::next_permutation(order).found);
}

}  // namespace
}  // namespace assay::xtensor_test
