#pragma once

#include <functional>

namespace assay {

/// Lets the calling thread's computations be ended from outside, until the end of the scope: some times a
/// second or more they ask `check`, which throws to end them.
class InterruptScope {
 public:
  explicit InterruptScope(std::function<void()> check);
  ~InterruptScope();
  InterruptScope(const InterruptScope&) = delete;
  InterruptScope& operator=(const InterruptScope&) = delete;
  /// Asks, if this thread is in a scope.
  static void check();
  static bool is_set();

 private:
  std::function<void()> check_;
  const InterruptScope* outer_;
};

}  // namespace assay
