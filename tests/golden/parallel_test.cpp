#include "assay/golden/parallel.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cfenv>
#include <future>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include "assay/golden/bound.h"
#include "assay/golden/error.h"
#include "assay/golden/summation.h"

namespace assay::parallel_test {
namespace {

TEST(Parallel, EachIsDoneOnceWhateverTheThreads) {
  for (const int threads : {1, 2, 5}) {
    const ThreadScope scope(threads);
    for (const std::int64_t n : {0, 1, 7, 1000}) {
      for (const std::int64_t grain : {1, 3, 5000}) {
        std::vector<int> done(static_cast<std::size_t>(n), 0);
        each_in_parallel(n, grain, [&](std::int64_t i) { ++done[static_cast<std::size_t>(i)]; });
        EXPECT_EQ(done, std::vector<int>(static_cast<std::size_t>(n), 1)) << threads << " " << n;
      }
    }
  }
}

// Waits for the others: a loop that one thread walked alone would never end.
TEST(Parallel, ThreadsWorkAtTheSameTime) {
  const ThreadScope scope(3);
  std::atomic<int> here = 0;
  each_in_parallel(3, 1, [&](std::int64_t) {
    ++here;
    while (here < 3) std::this_thread::yield();
  });
  EXPECT_EQ(here, 3);
}

TEST(Parallel, AScopeEndsAndLoopsWithinLoopsTakeNoMoreThreads) {
  EXPECT_EQ(ThreadScope::current(), 1);
  {
    const ThreadScope scope(4);
    EXPECT_EQ(ThreadScope::current(), 4);
    std::atomic<int> most = 0;
    each_in_parallel(8, 1, [&](std::int64_t) { most = std::max<int>(most, ThreadScope::current()); });
    EXPECT_EQ(most, 1);
    EXPECT_EQ(ThreadScope::current(), 4);
  }
  EXPECT_EQ(ThreadScope::current(), 1);
}

TEST(Parallel, EveryThreadHasTheCallersArithmetic) {
  const ThreadScope threads(3);
  const ErrorScope errors({0x1p-9, 0x1p-133});
  const SummationScope sums({.block = 7});
  std::fesetround(FE_UPWARD);
  std::atomic<int> here = 0, right = 0;
  each_in_parallel(3, 1, [&](std::int64_t) {
    ++here;
    while (here < 3) std::this_thread::yield();
    const Summation* how = SummationScope::current();
    right += ErrorScope::current().unit_roundoff == 0x1p-9 && how != nullptr && how->block == 7 &&
             std::fegetround() == FE_UPWARD;
  });
  std::fesetround(FE_TONEAREST);
  EXPECT_EQ(right, 3);
}

TEST(Parallel, WhatTheFirstOneThrewIsThrown) {
  for (const int threads : {1, 4}) {
    const ThreadScope scope(threads);
    try {
      each_in_parallel(100, 1, [](std::int64_t i) {
        if (i % 10 == 3) throw Error("place {}", i);
      });
      FAIL() << "nothing was thrown";
    } catch (const Error& e) {
      EXPECT_STREQ(e.what(), "place 3");
    }
  }
}

// Waits for the other: a loop that only its own thread walked would never end.
TEST(Parallel, WhoWaitsForACrewHelpsWithItsLoops) {
  Crew crew;
  bool left = false;
  std::set<std::thread::id> threads;
  std::mutex mutex;
  std::atomic<int> here = 0, right = 0;
  auto member = std::async(std::launch::async, [&] {
    const Crew::Member of(crew, left);
    const ErrorScope errors({0x1p-9, 0x1p-133});
    each_in_parallel(2, 1, [&](std::int64_t) {
      ++here;
      while (here < 2) std::this_thread::yield();
      right += ErrorScope::current().unit_roundoff == 0x1p-9 && ThreadScope::current() == 1;
      const std::scoped_lock lock(mutex);
      threads.insert(std::this_thread::get_id());
    });
    std::vector<int> done(1000, 0);
    each_in_parallel(1000, 1, [&](std::int64_t i) { ++done[static_cast<std::size_t>(i)]; });
    return done;
  });
  crew.help_until(left);
  EXPECT_EQ(threads.size(), 2U);
  EXPECT_TRUE(threads.contains(std::this_thread::get_id()));
  EXPECT_EQ(right, 2);
  EXPECT_EQ(member.get(), std::vector<int>(1000, 1));
}

TEST(Parallel, WhatAHelperThrewIsThrownWhereTheLoopIs) {
  Crew crew;
  bool left = false;
  const auto waiting = std::this_thread::get_id();
  std::atomic<int> here = 0;
  auto member = std::async(std::launch::async, [&] {
    const Crew::Member of(crew, left);
    each_in_parallel(2, 1, [&](std::int64_t) {
      ++here;
      while (here < 2) std::this_thread::yield();
      if (std::this_thread::get_id() == waiting) throw Error("of a helper");
    });
  });
  EXPECT_NO_THROW(crew.help_until(left));
  EXPECT_THROW(member.get(), Error);
}

}  // namespace
}  // namespace assay::parallel_test
