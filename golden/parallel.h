#pragma once

#include <cstdint>
#include <functional>

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

/// f(i) for i < n, likewise.
template <class F>
void each_in_parallel(std::int64_t n, std::int64_t grain, F f) {
  in_parallel(n, grain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) f(i);
  });
}

/// As many of these as take a thread about a tenth of a millisecond.
/// @param operations  of one, each of some nanoseconds
constexpr std::int64_t grain_of(std::int64_t operations) {
  constexpr std::int64_t worth_a_thread = 1 << 14;  // its start takes some 20 microseconds
  return operations >= worth_a_thread ? 1 : worth_a_thread / (operations > 0 ? operations : 1);
}

}  // namespace assay
