#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <vector>

namespace assay {

/// How many threads loops of the calling thread may take (in_parallel), until the end of the scope; 1
/// without one. Their number changes no result.
class ThreadScope {
 public:
  explicit ThreadScope(int threads);
  ~ThreadScope();
  ThreadScope(const ThreadScope&) = delete;
  ThreadScope& operator=(const ThreadScope&) = delete;
  static int current();

 private:
  int outer_;
};

/// f(begin, end) for the stretches of 0 .. n - 1, each of `grain` but the last, in any order. The threads
/// have the caller's ErrorScope, SummationScope and floating-point environment. One call must not read what
/// another writes. Throws what the first stretch that threw has thrown.
void in_parallel(std::int64_t n, std::int64_t grain,
                 const std::function<void(std::int64_t begin, std::int64_t end)>& f);

/// f(i) for i < n, likewise. One stretch alone is no call, so that all of it is compiled into its caller.
template <class F>
void each_in_parallel(std::int64_t n, std::int64_t grain, F f) {
  if (n <= grain) {
    for (std::int64_t i = 0; i < n; ++i) f(i);
    return;
  }
  in_parallel(n, grain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) f(i);
  });
}

/// Threads of which one waits for the others, and does a part of their loops (in_parallel) meanwhile. Who
/// does it changes no result.
class Crew {
 public:
  /// The calling thread's loops are open to whoever waits, until the end of the scope.
  class Member {
   public:
    /// @param left  becomes true at the end, and is read by help_until() alone before
    Member(Crew&, bool& left);
    ~Member();
    Member(const Member&) = delete;
    Member& operator=(const Member&) = delete;

   private:
    Crew& crew_;
    bool& left_;
    Crew* outer_;
  };
  void help_until(const bool& left);

 private:
  class Loop;
  void run(Loop&);
  friend void in_parallel(std::int64_t, std::int64_t, const std::function<void(std::int64_t, std::int64_t)>&);

  std::mutex mutex_;
  std::condition_variable changed_;  // a loop was opened, somebody left a loop or the crew
  std::vector<Loop*> open_;
};

/// As many of these as take a thread about a tenth of a millisecond.
/// @param operations  of one, each of some nanoseconds
constexpr std::int64_t grain_of(std::int64_t operations) {
  constexpr std::int64_t worth_a_thread = 1 << 14;  // its start takes some 20 microseconds
  return operations >= worth_a_thread ? 1 : worth_a_thread / (operations > 0 ? operations : 1);
}

}  // namespace assay
