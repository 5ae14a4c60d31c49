#include "assay/golden/parallel.h"

#include <algorithm>
#include <atomic>
#include <cfenv>
#include <exception>
#include <future>
#include <mutex>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include "assay/golden/bound.h"
#include "assay/golden/interrupt.h"
#include "assay/golden/summation.h"

namespace assay {
namespace {

thread_local int threads_now = 1;
thread_local const InterruptScope* interrupt_now = nullptr;

// What a thread computes with, as the one that asked has it.
class Arithmetics {
 public:
  Arithmetics() : model_(ErrorScope::current()) {
    if (const Summation* how = SummationScope::current()) summation_ = *how;
    std::fegetenv(&environment_);
  }
  template <class F>
  void run(F f) const {
    std::fesetenv(&environment_);
    const ErrorScope model(model_);
    std::optional<SummationScope> summation;
    if (summation_) summation.emplace(*summation_);
    f();
  }

 private:
  const ErrorModel& model_;
  std::optional<Summation> summation_;
  std::fenv_t environment_;
};

}  // namespace

InterruptScope::InterruptScope(std::function<void()> check)
    : check_(std::move(check)), outer_(interrupt_now) {
  interrupt_now = this;
}
InterruptScope::~InterruptScope() {
  interrupt_now = outer_;
}
void InterruptScope::check() {
  if (interrupt_now != nullptr) interrupt_now->check_();
}
bool InterruptScope::is_set() {
  return interrupt_now != nullptr;
}

ThreadScope::ThreadScope(int threads) : outer_(threads_now) {
  threads_now = std::max(threads, 1);
}
ThreadScope::~ThreadScope() {
  threads_now = outer_;
}
int ThreadScope::current() {
  return threads_now;
}

void in_parallel(std::int64_t n, std::int64_t grain,
                 const std::function<void(std::int64_t begin, std::int64_t end)>& f) {
  const std::int64_t stretches = n <= 0 ? 0 : (n + grain - 1) / grain;
  if (stretches <= 1 || (threads_now == 1 && !InterruptScope::is_set())) {
    if (n > 0) f(0, n);
    return;
  }
  std::atomic<std::int64_t> next = 0;
  std::mutex mutex;
  std::exception_ptr thrown;
  std::int64_t thrown_in = stretches;
  const auto work = [&] {
    for (std::int64_t s = next++; s < stretches; s = next++) {
      try {
        InterruptScope::check();
        f(s * grain, std::min(n, (s + 1) * grain));
      } catch (...) {
        const std::scoped_lock lock(mutex);
        next = stretches;
        if (s < thrown_in) {
          thrown = std::current_exception();
          thrown_in = s;
        }
      }
    }
  };
  const Arithmetics callers;
  std::vector<std::future<void>> others;
  try {
    for (std::int64_t t = 1; t < std::min<std::int64_t>(threads_now, stretches); ++t)
      others.push_back(std::async(std::launch::async, [&] { callers.run(work); }));
  } catch (const std::system_error&) {  // no thread left: those that there are do it all
  }
  {
    const ThreadScope single(1);
    work();
  }
  for (auto& other : others) other.get();
  if (thrown) std::rethrow_exception(thrown);
}

}  // namespace assay
