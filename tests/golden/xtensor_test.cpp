#include "assay/golden/xtensor.h"

#include <gtest/gtest.h>

#include <xtensor/xmath.hpp>
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
  EXPECT_EQ(as_xtensor<double>(Tensor(DType::float64, {}))(), 0);
  EXPECT_EQ(to_tensor(as_xtensor<float>(Tensor(DType::float32, {0, 3}))).shape(), (Shape{0, 3}));
}

TEST(XTensor, RefusesAnotherElementType) {
  const Tensor t = Tensor::from_values(DType::bfloat16, {6}, six);
  EXPECT_THROW(as_xtensor<float>(t), Error);
  EXPECT_THROW(as_xtensor<double>(Tensor(DType::float32, {2})), Error);
  EXPECT_EQ(as_xtensor<std::uint16_t>(t)(0), 0x3f80);
}

TEST(XTensor, RefusesUnalignedBytes) {
  const auto owner = std::make_shared<std::vector<std::byte>>(16);
  const Tensor t(DType::float32, {2}, std::span<const std::byte>(*owner).subspan(1, 8), owner);
  EXPECT_THROW(as_xtensor<float>(t), Error);
}

}  // namespace
}  // namespace assay::xtensor_test
