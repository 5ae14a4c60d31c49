#include "assay/golden/tensor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "assay/golden/error.h"

namespace assay::tensor_test {
namespace {

using testing::ElementsAre;
constexpr std::int64_t huge = std::numeric_limits<std::int64_t>::max();

TEST(Shape, CountsElementsAndRefusesOverflow) {
  EXPECT_EQ(element_count({}), 1);
  EXPECT_EQ(element_count({2, 0, 3}), 0);
  EXPECT_EQ(element_count({huge}), huge);
  EXPECT_THROW(element_count({huge, 2}), Error);
  EXPECT_THROW(element_count({huge, 2, 0}), Error);
  EXPECT_THROW(element_count({0, huge, 2}), Error);
  EXPECT_THROW(element_count({-1}), Error);
  EXPECT_THROW(Tensor(DType::float64, {huge / 4}), Error);
  EXPECT_EQ(to_string(Shape{4, 512}), "[4, 512]");
  EXPECT_EQ(to_string(Shape{}), "[]");
}

TEST(Shape, UnravelIsCOrder) {
  EXPECT_EQ(unravel(3 * 20 + 17, {5, 20}), (Shape{3, 17}));
  EXPECT_EQ(unravel(0, {}), Shape());
  EXPECT_EQ(unravel(0, {0, 2}), (Shape{0, 0}));
}

TEST(Tensor, HoldsValuesOfEveryDtype) {
  for (const DType d : all_dtypes) {
    const Tensor t = Tensor::from_values(d, {2, 1}, std::vector<double>{1, 0});
    EXPECT_THAT(t.values(), ElementsAre(1, 0)) << name(d);
    EXPECT_EQ(t.value(0), 1) << name(d);
    EXPECT_EQ(t.bytes().size(), 2 * size_of(d)) << name(d);
    EXPECT_EQ(Tensor(d, {3}).value(2), 0) << name(d);
  }
}

TEST(Tensor, IndicesKeepTheirSign) {
  for (const DType d : {DType::int8, DType::int16, DType::int32, DType::int64}) {
    EXPECT_THAT(Tensor::from_values(d, {2}, std::vector<double>{-100, 7}).indices(), ElementsAre(-100, 7))
        << name(d);
  }
  EXPECT_THAT(Tensor::from_values(DType::uint8, {1}, std::vector<double>{200}).indices(), ElementsAre(200));
  const std::vector<std::int64_t> large = {huge, -huge};
  EXPECT_EQ(Tensor::from_indices({2}, large).indices(), large);
  EXPECT_THROW(Tensor(DType::float32, {1}).indices(), Error);
}

TEST(Tensor, RefusesBytesThatDoNotFit) {
  EXPECT_THROW(Tensor(DType::float32, {2}, std::vector<std::byte>(7)), Error);
  EXPECT_THROW(Tensor(DType::float32, {2}, std::vector<std::byte>(12)), Error);
  EXPECT_THROW(Tensor(DType::float32, {6}).reshaped({4}), Error);
  EXPECT_EQ(Tensor(DType::float32, {6}).reshaped({2, 3}).shape(), (Shape{2, 3}));
}

TEST(Tensor, CopiesShareTheirBytes) {
  Tensor copy;
  EXPECT_EQ(copy.size(), 0);
  {
    const Tensor t = Tensor::from_values(DType::float64, {1}, std::vector<double>{5});
    copy = t;
    EXPECT_EQ(copy.bytes().data(), t.bytes().data());
  }
  EXPECT_EQ(copy.value(0), 5);
}

const Tensor six = Tensor::from_values(DType::float32, {6}, std::vector<double>{0, 1, 2, 3, 4, 5});

TEST(GatherView, StridesOfAnySign) {
  EXPECT_THAT(gather_view(six, {3, 2}, {1, 3}, 0).values(), ElementsAre(0, 3, 1, 4, 2, 5));
  EXPECT_THAT(gather_view(six, {3}, {-2}, 5).values(), ElementsAre(5, 3, 1));
  EXPECT_THAT(gather_view(six, {2, 2}, {0, 1}, 4).values(), ElementsAre(4, 5, 4, 5));
  EXPECT_THAT(gather_view(six, {}, {}, 3).values(), ElementsAre(3));
  EXPECT_EQ(gather_view(six, {0}, {1}, 100).size(), 0);
}

TEST(GatherView, NeverReachesOutside) {
  EXPECT_THROW(gather_view(six, {7}, {1}, 0), Error);
  EXPECT_THROW(gather_view(six, {2}, {1}, 5), Error);
  EXPECT_THROW(gather_view(six, {2}, {-1}, 0), Error);
  EXPECT_THROW(gather_view(six, {1}, {1}, -1), Error);
  EXPECT_THROW(gather_view(six, {}, {}, 6), Error);
  EXPECT_THROW(gather_view(six, {2, 2}, {5, 1}, 0), Error);
  EXPECT_THROW(gather_view(six, {2}, {1, 1}, 0), Error);
  // Sums and products that overflow are no way around.
  EXPECT_THROW(gather_view(six, {3}, {huge}, 0), Error);
  EXPECT_THROW(gather_view(six, {2, 2}, {huge, huge}, 0), Error);
  EXPECT_THROW(gather_view(six, {2}, {1}, huge), Error);
  EXPECT_THROW(gather_view(six, {2, 2}, {-huge, huge}, 0), Error);
  // The stride of an extent of one is never taken.
  EXPECT_THAT(gather_view(six, {1, 2}, {huge, 1}, 4).values(), ElementsAre(4, 5));
}

}  // namespace
}  // namespace assay::tensor_test
