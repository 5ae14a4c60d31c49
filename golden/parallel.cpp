#include "assay/golden/parallel.h"

#include <algorithm>
#include <atomic>
#include <cfenv>
#include <exception>
#include <functional>
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
thread_local Crew* crew_now = nullptr;

// What a thread computes with, as the one that asked has it.
class Arithmetics {
 public:
  Arithmetics() : model_(ErrorScope::current()) {
    if (const Summation* how = SummationScope::current()) summation_ = *how;
    std::fegetenv(&environment_);
  }
  template <class F>
  void run(F f) const {
    std::fenv_t own;
    std::fegetenv(&own);
    std::fesetenv(&environment_);
    {
      const ErrorScope model(model_);
      std::optional<SummationScope> summation;
      if (summation_) summation.emplace(*summation_);
      f();
    }
    std::fesetenv(&own);
  }

 private:
  const ErrorModel& model_;
  std::optional<Summation> summation_;
  std::fenv_t environment_;
};

}  // namespace

// Its stretches go to whoever has time.
class Crew::Loop {
 public:
  Loop(std::int64_t n, std::int64_t grain, const std::function<void(std::int64_t, std::int64_t)>& f)
      : n_(n), grain_(grain), f_(f) {}
  std::int64_t stretches() const { return stretches_; }
  bool is_taken() const { return next_ >= stretches_; }

  // On the thread that has the loop. Loops within it take no thread but this.
  void work() {
    const ThreadScope single(1);
    Crew* const crew = std::exchange(crew_now, nullptr);
    take_stretches();
    crew_now = crew;
  }
  // On another.
  void help() {
    callers_.run([&] { work(); });
  }
  void rethrow() const {
    if (thrown_) std::rethrow_exception(thrown_);
  }

  int helpers = 0;  // of the crew

 private:
  void take_stretches() {
    for (std::int64_t s = next_++; s < stretches_; s = next_++) {
      try {
        InterruptScope::check();
        f_(s * grain_, std::min(n_, (s + 1) * grain_));
      } catch (...) {
        const std::scoped_lock lock(mutex_);
        next_ = stretches_;
        if (s < thrown_in_) {
          thrown_ = std::current_exception();
          thrown_in_ = s;
        }
      }
    }
  }

  const std::int64_t n_, grain_, stretches_ = n_ <= 0 ? 0 : (n_ + grain_ - 1) / grain_;
  const std::function<void(std::int64_t, std::int64_t)>& f_;
  const Arithmetics callers_;
  std::atomic<std::int64_t> next_ = 0;
  std::mutex mutex_;
  std::exception_ptr thrown_;
  std::int64_t thrown_in_ = stretches_;
};

Crew::Member::Member(Crew& crew, bool& left) : crew_(crew), left_(left), outer_(crew_now) {
  crew_now = &crew;
}
Crew::Member::~Member() {
  crew_now = outer_;
  const std::scoped_lock lock(crew_.mutex_);
  left_ = true;
  crew_.changed_.notify_all();
}

void Crew::run(Loop& loop) {
  {
    const std::scoped_lock lock(mutex_);
    open_.push_back(&loop);
  }
  changed_.notify_all();
  loop.work();
  std::unique_lock lock(mutex_);
  std::erase(open_, &loop);
  changed_.wait(lock, [&] { return loop.helpers == 0; });
}

void Crew::help_until(const bool& left) {
  std::unique_lock lock(mutex_);
  const auto open = [&] {
    return std::ranges::find_if(open_, [](const Loop* loop) { return !loop->is_taken(); });
  };
  while (!left) {
    const auto found = open();
    if (found == open_.end()) {
      changed_.wait(lock);
      continue;
    }
    Loop& loop = **found;
    ++loop.helpers;
    lock.unlock();
    loop.help();
    lock.lock();
    --loop.helpers;
    changed_.notify_all();
  }
}

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
  const bool is_alone = threads_now == 1 && crew_now == nullptr && !InterruptScope::is_set();
  if (n <= grain || is_alone) {
    if (n > 0) f(0, n);
    return;
  }
  Crew::Loop loop(n, grain, f);
  std::vector<std::future<void>> others;
  try {
    for (std::int64_t t = 1; t < std::min<std::int64_t>(threads_now, loop.stretches()); ++t)
      others.push_back(std::async(std::launch::async, [&] { loop.help(); }));
  } catch (const std::system_error&) {  // no thread left: those that there are do it all
  }
  if (crew_now != nullptr)
    crew_now->run(loop);
  else
    loop.work();
  for (auto& other : others) other.get();
  loop.rethrow();
}

}  // namespace assay
