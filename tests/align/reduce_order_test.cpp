#include "assay/align/arithmetic/reduce_order.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "assay/align/ranks/ranks.h"
#include "assay/golden/error.h"

namespace assay::align::reduce_order_test {
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

// A ring leaves chunk k at rank k: what is gathered then is the all-reduce, bit for bit.
TEST(ReduceOrder, ScatteredSumsAreThoseOfAnAllReduce) {
  for (const char* order : {"ranks", "ring", "tree"}) {
    const Parallel parallel = parse_parallel(std::string("tp=4,reduce=") + order);
    run_ranks(4, [&](Communicator& on) {
      const Ranks ranks(on, Mesh(parallel, on.rank()), arithmetic(Precision::fp32));
      const double x = std::vector{0x1p24, 1.0, 1.0, -0x1p24}[static_cast<std::size_t>(on.rank())];
      const Tensor mine = numbers(DType::float32, {x, x, x, x});
      const auto move = [&](Movement::Kind kind, const Tensor& t) {
        return ranks.move({kind, Axis::tp}, "x", t).values();
      };
      const Tensor piece = ranks.move({Movement::Kind::reduce_scatter, Axis::tp}, "x", mine);
      EXPECT_EQ(move(Movement::Kind::all_gather, piece), move(Movement::Kind::all_reduce, mine)) << order;
    });
  }
}

TEST(ReduceOrder, PartsThatDoNotFitAreNotAddedUp) {
  const auto run = [](const Tensor& other) {
    return [other] { add_in_order(std::vector{numbers(DType::float64, {1, 2}), other}, ReduceOrder::ranks); };
  };
  EXPECT_THAT(run(numbers(DType::float64, {1})), ThrowsMessage<Error>(HasSubstr("float64 [1]")));
  EXPECT_THAT(run(numbers(DType::float32, {1, 2})), ThrowsMessage<Error>(HasSubstr("float32")));
}

}  // namespace
}  // namespace assay::align::reduce_order_test
