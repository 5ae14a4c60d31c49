#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>

namespace assay {

/// Some of the elements of a tensor.
struct Chunk {
  std::size_t index;
  std::int64_t begin, count;
};

/// The elements of a tensor, divided into chunks of a fixed size for several threads. Results kept by chunk
/// can be merged in an order that does not depend on the threads.
class Chunks {
 public:
  explicit Chunks(std::int64_t size);
  std::size_t count() const { return count_; }

  /// Runs worker() in up to `threads` threads, or fewer for little work. The worker takes chunks with take().
  /// Throws the exception of the first chunk that threw one, with any number of threads.
  void run(int threads, const std::function<void()>& worker);

  /// f(chunk) for chunks that no other thread has taken, until none is left or one of them threw.
  template <class F>
  void take(F f) {
    for (std::size_t c = next_++; c < count_; c = next_++) {
      try {
        f(at(c));
      } catch (...) {
        fail(c);
      }
    }
  }

 private:
  Chunk at(std::size_t index) const;
  /// Keeps the exception that is being handled.
  void fail(std::size_t index);

  std::int64_t size_;
  std::size_t count_;
  std::atomic<std::size_t> next_ = 0;
  std::mutex mutex_;  ///< of the two below
  std::exception_ptr problem_;
  std::size_t problem_at_;
};

}  // namespace assay
