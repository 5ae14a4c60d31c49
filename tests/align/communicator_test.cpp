#include "assay/align/communicator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>

#include "assay/align/reduce_order.h"
#include "assay/golden/error.h"

namespace assay::align {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::ThrowsMessage;

Tensor numbers(DType dtype, const std::vector<double>& values) {
  return Tensor::from_values(dtype, {static_cast<std::int64_t>(values.size())}, values);
}

TEST(Communicator, EveryRankGetsWhatAllGiveInTheirOrder) {
  std::atomic<int> right = 0;
  run_ranks(5, [&](Communicator& on) {
    for (int round = 0; round < 50; ++round) {
      const std::vector<int> group = on.rank() % 2 == 0 ? std::vector{0, 2, 4} : std::vector{1, 3};
      const auto all = on.all_gather(group, "round", numbers(DType::float64, {on.rank() + 10.0 * round}));
      for (std::size_t k = 0; k < group.size(); ++k) right += all.at(k).value(0) == group[k] + 10.0 * round;
    }
  });
  EXPECT_EQ(right, 50 * (3 * 3 + 2 * 2));
}

// In float32, 2^24 + 1 is 2^24: what comes out says in which order the parts were added.
TEST(Communicator, SumsAreAddedInTheOrderThatIsStated) {
  const auto sums = [](ReduceOrder order) {
    std::vector<double> result;
    run_ranks(4, [&](Communicator& on) {
      const double mine = std::vector{0x1p24, 1.0, 1.0, -0x1p24}[static_cast<std::size_t>(on.rank())];
      const Tensor sum = add_in_order(
          on.all_gather({0, 1, 2, 3}, "sum", numbers(DType::float32, {mine, mine, mine, mine})), order);
      if (on.rank() == 2) result = sum.values();
    });
    return result;
  };
  EXPECT_EQ(sums(ReduceOrder::ranks), (std::vector<double>{0, 0, 0, 0}));
  // (2^24 + 1) + (1 - 2^24)
  EXPECT_EQ(sums(ReduceOrder::tree), (std::vector<double>{1, 1, 1, 1}));
  // chunk k from rank k + 1 on: 1 + 1 - 2^24 + 2^24, 1 - 2^24 + 2^24 + 1, -2^24 + 2^24 + 1 + 1, as by rank
  EXPECT_EQ(sums(ReduceOrder::ring), (std::vector<double>{2, 2, 2, 0}));
}

TEST(Communicator, RanksInDifferentCollectivesAreAnError) {
  const auto run = [] {
    run_ranks(2, [](Communicator& on) {
      on.all_gather({0, 1}, on.rank() == 0 ? "all-reduce" : "all-gather", numbers(DType::float64, {1}));
    });
  };
  EXPECT_THAT(run, ThrowsMessage<Error>(
                       AllOf(HasSubstr("do not agree"), HasSubstr("all-reduce"), HasSubstr("all-gather"))));
}

TEST(Communicator, ARankThatHasEndedIsNotWaitedFor) {
  const auto run = [] {
    run_ranks(3, [](Communicator& on) {
      if (on.rank() != 1) on.all_gather({0, 1, 2}, "all-reduce of w", numbers(DType::float64, {1}));
    });
  };
  EXPECT_THAT(run, ThrowsMessage<Error>(
                       AllOf(HasSubstr("for rank 1, which has ended"), HasSubstr("rank 1 is done"))));
}

TEST(Communicator, WhatARankThrowsIsThrown) {
  const auto run = [] {
    run_ranks(3, [](Communicator& on) {
      if (on.rank() == 1) throw Error("rank 1 is out of memory");
      on.all_gather({0, 1, 2}, "all-reduce", numbers(DType::float64, {1}));
    });
  };
  EXPECT_THAT(run, ThrowsMessage<Error>("rank 1 is out of memory"));
}

TEST(Communicator, ADeadlockEndsWithTheStateOfEveryRank) {
  const auto run = [] {
    run_ranks(
        3,
        [](Communicator& on) {  // a circle of pairs
          const std::vector<int> groups[] = {{0, 1}, {1, 2}, {0, 2}};
          on.all_gather(groups[on.rank()], "send", numbers(DType::float64, {1}));
        },
        std::chrono::milliseconds(50));
  };
  EXPECT_THAT(
      run, ThrowsMessage<Error>(AllOf(HasSubstr("has waited 50 ms in send"),
                                      HasSubstr("rank 0 waits in send"), HasSubstr("rank 2 waits in send"))));
}

TEST(Communicator, EveryRankGetsItsPart) {
  std::atomic<int> right = 0;
  run_ranks(3, [&](Communicator& on) {
    std::vector<Tensor> parts;
    for (int to = 0; to < 3; ++to)
      parts.push_back(numbers(DType::float64, std::vector<double>(static_cast<std::size_t>(to), on.rank())));
    const auto got = on.all_to_all({0, 1, 2}, "rows", parts);
    for (std::size_t from = 0; from < 3; ++from)
      right += got.at(from).values() ==
               std::vector<double>(static_cast<std::size_t>(on.rank()), static_cast<double>(from));
  });
  EXPECT_EQ(right, 9);
}

TEST(Communicator, WhatIsSentWaitsForItsReceiver) {
  std::atomic<int> right = 0;
  run_ranks(2, [&](Communicator& on) {
    const int other = 1 - on.rank();
    for (const double x : {1.0, 2.0}) on.send(other, "activation", numbers(DType::float64, {x}));
    on.send(other, "gradient", numbers(DType::float64, {3}));
    right += on.receive(other, "gradient").value(0) == 3;
    for (const double x : {1.0, 2.0}) right += on.receive(other, "activation").value(0) == x;
  });
  EXPECT_EQ(right, 6);
}

TEST(Communicator, NobodyWaitsForASenderThatHasEnded) {
  const auto run = [] {
    run_ranks(2, [](Communicator& on) {
      if (on.rank() == 0) on.receive(1, "activation");
    });
  };
  EXPECT_THAT(run, ThrowsMessage<Error>(HasSubstr("waits in activation for rank 1, which has ended")));
}

TEST(Communicator, PartsThatDoNotFitAreNotAddedUp) {
  const auto run = [](const Tensor& other) {
    return [other] { add_in_order(std::vector{numbers(DType::float64, {1, 2}), other}, ReduceOrder::ranks); };
  };
  EXPECT_THAT(run(numbers(DType::float64, {1})), ThrowsMessage<Error>(HasSubstr("float64 [1]")));
  EXPECT_THAT(run(numbers(DType::float32, {1, 2})), ThrowsMessage<Error>(HasSubstr("float32")));
}

}  // namespace
}  // namespace assay::align
