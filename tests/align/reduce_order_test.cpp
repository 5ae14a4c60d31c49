#include "assay/align/reduce_order.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "assay/golden/error.h"

namespace assay::align {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

Tensor numbers(DType dtype, const std::vector<double>& values) {
  return Tensor::from_values(dtype, {static_cast<std::int64_t>(values.size())}, values);
}

// In float32, 2^24 + 1 is 2^24: what comes out says in which order the parts were added.
TEST(ReduceOrder, SumsAreAddedInTheOrderThatIsStated) {
  std::vector<Tensor> parts;
  for (const double x : {0x1p24, 1.0, 1.0, -0x1p24}) parts.push_back(numbers(DType::float32, {x, x, x, x}));
  const auto sums = [&](ReduceOrder order) { return add_in_order(parts, order).values(); };
  EXPECT_EQ(sums(ReduceOrder::ranks), (std::vector<double>{0, 0, 0, 0}));
  // (2^24 + 1) + (1 - 2^24)
  EXPECT_EQ(sums(ReduceOrder::tree), (std::vector<double>{1, 1, 1, 1}));
  // chunk k from rank k + 1 on: 1 + 1 - 2^24 + 2^24, 1 - 2^24 + 2^24 + 1, -2^24 + 2^24 + 1 + 1, as by rank
  EXPECT_EQ(sums(ReduceOrder::ring), (std::vector<double>{2, 2, 2, 0}));
}

TEST(ReduceOrder, PartsThatDoNotFitAreNotAddedUp) {
  const auto run = [](const Tensor& other) {
    return [other] { add_in_order(std::vector{numbers(DType::float64, {1, 2}), other}, ReduceOrder::ranks); };
  };
  EXPECT_THAT(run(numbers(DType::float64, {1})), ThrowsMessage<Error>(HasSubstr("float64 [1]")));
  EXPECT_THAT(run(numbers(DType::float32, {1, 2})), ThrowsMessage<Error>(HasSubstr("float32")));
}

}  // namespace
}  // namespace assay::align
