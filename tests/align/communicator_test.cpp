#include "assay/align/ranks/communicator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <thread>

#include "assay/golden/error.h"
#include "ranks_under_test.h"

namespace assay::align::communicator_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::ThrowsMessage;

Tensor numbers(const std::vector<double>& values) {
  return Tensor::from_values(DType::float64, {static_cast<std::int64_t>(values.size())}, values);
}

// To wait for another rank that does not come, yet longer than a loaded machine takes to begin all of them.
constexpr std::chrono::milliseconds brief(300);

// Far below the patience, and far above the seconds in which a deadlock is found.
constexpr std::chrono::seconds seconds_of_a_loaded_machine(60);

std::vector<int> all(const Communicator& on) {
  std::vector<int> ranks(static_cast<std::size_t>(on.size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

void gather(Communicator& on, const std::string& what) {
  on.all_gather(all(on), what, numbers({1}));
}

class Ranks : public testing::TestWithParam<int> {
 protected:
  static void run(const std::function<void(Communicator&)>& work,
                  std::chrono::milliseconds patience = default_patience) {
    run_ranks_under_test(GetParam(), work, patience);
  }
};
INSTANTIATE_TEST_SUITE_P(Communicator, Ranks, testing::ValuesIn(rank_counts()),
                         testing::PrintToStringParamName());

TEST_P(Ranks, EveryRankGetsWhatItsGroupGivesInItsOrder) {
  run([](Communicator& on) {
    std::vector<int> group;  // of even ranks and of odd ones
    for (int r = on.rank() % 2; r < on.size(); r += 2) group.push_back(r);
    for (int round = 0; round < 1000; ++round) {
      const auto got = on.all_gather(group, "round", numbers({on.rank() + 10.0 * round}));
      ASSERT_EQ(got.size(), group.size());
      for (std::size_t k = 0; k < group.size(); ++k) EXPECT_EQ(got[k].value(0), group[k] + 10.0 * round);
    }
  });
}

TEST_P(Ranks, EveryRankGetsItsPart) {
  run([](Communicator& on) {
    std::vector<Tensor> parts;  // of other shapes, and none for rank 0
    for (int to = 0; to < on.size(); ++to)
      parts.push_back(numbers(std::vector<double>(static_cast<std::size_t>(to), on.rank())));
    const auto got = on.all_to_all(all(on), "rows", parts);
    for (std::size_t from = 0; from < got.size(); ++from)
      EXPECT_EQ(got[from].values(),
                std::vector<double>(static_cast<std::size_t>(on.rank()), static_cast<double>(from)));
  });
}

TEST_P(Ranks, ShapeAndDtypeComeWithTheBits) {
  run([](Communicator& on) {
    for (const DType dtype : all_dtypes) {
      const Tensor mine = Tensor::from_values(dtype, {2, 1, 3}, std::vector{0.0, 1.0, 1.0, 0.0, 1.0, 0.0});
      for (const Tensor& got : on.all_gather(all(on), "dtype", mine)) {
        EXPECT_EQ(got.dtype(), dtype);
        EXPECT_EQ(got.shape(), mine.shape());
        EXPECT_TRUE(std::ranges::equal(got.bytes(), mine.bytes()));
      }
      EXPECT_EQ(on.all_gather(all(on), "scalar", Tensor(dtype, {})).front().shape(), Shape{});
      EXPECT_EQ(on.all_gather(all(on), "nothing", Tensor(dtype, {0, 3})).back().shape(), (Shape{0, 3}));
    }
  });
}

TEST_P(Ranks, AGroupOfOneMeetsItself) {
  run([](Communicator& on) {
    EXPECT_EQ(on.all_gather({on.rank()}, "alone", numbers({1.0 * on.rank()})).at(0).value(0), on.rank());
  });
}

TEST_P(Ranks, LargeTensorsArrive) {
  constexpr std::int64_t megabytes = 64;
  run([](Communicator& on) {
    const int next = (on.rank() + 1) % on.size(), last = (on.rank() + on.size() - 1) % on.size();
    std::vector<std::int64_t> values(megabytes * (std::int64_t{1} << 20) / 8);
    std::iota(values.begin(), values.end(), on.rank());
    on.send(next, "large", Tensor::from_indices({static_cast<std::int64_t>(values.size())}, values));
    on.send(next, "small", numbers({1}));
    EXPECT_EQ(on.receive(last, "small").value(0), 1);
    std::iota(values.begin(), values.end(), last);
    EXPECT_TRUE(on.receive(last, "large").indices() == values);
  });
}

TEST_P(Ranks, WhatIsSentWaitsForItsReceiver) {
  run([](Communicator& on) {
    const int next = (on.rank() + 1) % on.size(), last = (on.rank() + on.size() - 1) % on.size();
    for (const double x : {1.0, 2.0}) on.send(next, "activation", numbers({x}));
    on.send(next, "gradient", numbers({3}));
    EXPECT_EQ(on.receive(last, "gradient").value(0), 3);
    for (const double x : {1.0, 2.0}) EXPECT_EQ(on.receive(last, "activation").value(0), x);
  });
}

TEST_P(Ranks, WhatNobodyReceivesIsNoProblem) {
  run([](Communicator& on) { on.send(0, "activation", numbers(std::vector<double>(1 << 20))); });
  EXPECT_NO_THROW(run([](Communicator& on) { gather(on, "of the next run"); }));
}

TEST_P(Ranks, RanksInDifferentCollectivesAreAnError) {
  const auto work = [](Communicator& on) { gather(on, on.rank() == 0 ? "all-reduce" : "all-gather"); };
  EXPECT_THAT([&] { run(work); },
              ThrowsMessage<Error>(
                  AllOf(HasSubstr("do not agree"), HasSubstr("all-reduce"), HasSubstr("all-gather"))));
}

TEST_P(Ranks, ARankOutsideOfTheGroupIsAnError) {
  const auto work = [](Communicator& on) { on.all_gather({0}, "all-reduce", numbers({1})); };
  EXPECT_THAT([&] { run(work); }, ThrowsMessage<Error>(HasSubstr("is not in the group [0]")));
}

TEST_P(Ranks, ARankThatHasEndedIsNotWaitedFor) {
  const auto work = [](Communicator& on) {
    if (on.rank() != 1) gather(on, "all-reduce of w");
  };
  EXPECT_THAT([&] { run(work); },
              ThrowsMessage<Error>(AllOf(HasSubstr("waits in all-reduce of w for rank 1, which has ended"),
                                         HasSubstr("rank 1 is done"))));
}

TEST_P(Ranks, NobodyWaitsForASenderThatHasEnded) {
  const auto work = [](Communicator& on) {
    if (on.rank() == 0) on.receive(1, "activation");
  };
  EXPECT_THAT([&] { run(work); },
              ThrowsMessage<Error>(HasSubstr("waits in activation for rank 1, which has ended")));
}

TEST_P(Ranks, WhatARankThrowsIsThrown) {
  const auto work = [](Communicator& on) {
    if (on.rank() == 1) throw Error("out of memory");
    gather(on, "all-reduce");
  };
  EXPECT_THAT([&] { run(work); }, ThrowsMessage<Error>(HasSubstr("out of memory")));
}

TEST_P(Ranks, ADeadlockEndsWithinSecondsWithTheStateOfEveryRank) {
  const auto work = [](Communicator& on) { on.receive((on.rank() + 1) % on.size(), "activation"); };
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_THAT([&] { run(work); },
              ThrowsMessage<Error>(AllOf(HasSubstr("waits in activation, and all others wait too"),
                                         HasSubstr("rank 0 waits in activation"),
                                         HasSubstr("rank 1 waits in activation"))));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, seconds_of_a_loaded_machine);
}

TEST_P(Ranks, GroupsThatMeetInACircleAreADeadlock) {
  if (GetParam() < 3) GTEST_SKIP() << "two ranks have one group";
  const auto work = [](Communicator& on) {
    const std::vector<std::vector<int>> groups = {{0, 1}, {1, 2}, {0, 2}};
    if (on.rank() < 3) on.all_gather(groups[static_cast<std::size_t>(on.rank())], "send", numbers({1}));
  };
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_THAT([&] { run(work); },
              ThrowsMessage<Error>(AllOf(HasSubstr("waits in send, and all others wait too"),
                                         HasSubstr("rank 2 waits in send"))));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, seconds_of_a_loaded_machine);
}

TEST_P(Ranks, ARankThatComputesSaysSo) {
  const auto work = [](Communicator& on) {
    gather(on, "all-reduce");
    if (on.rank() == 1) std::this_thread::sleep_for(4 * brief);
    gather(on, "all-gather");
  };
  EXPECT_THAT([&] { run(work, brief); },
              ThrowsMessage<Error>(HasSubstr("rank 1 computes behind all-reduce")));
}

TEST_P(Ranks, WhoIsDoneWaitsForWhoComputes) {
  run(
      [](Communicator& on) {
        if (on.rank() == 1) std::this_thread::sleep_for(3 * brief);
      },
      brief);
}

}  // namespace
}  // namespace assay::align::communicator_test
