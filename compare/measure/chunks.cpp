#include "assay/compare/measure/chunks.h"

#include <algorithm>
#include <thread>
#include <vector>

namespace assay {
namespace {

constexpr std::int64_t chunk = 1 << 16;  // elements
constexpr std::size_t per_thread = 4;    // chunks: to start a thread costs about as much

}  // namespace

Chunks::Chunks(std::int64_t size)
    : size_(size), count_(static_cast<std::size_t>((size + chunk - 1) / chunk)), problem_at_(count_) {}

Chunk Chunks::at(std::size_t index) const {
  const std::int64_t begin = static_cast<std::int64_t>(index) * chunk;
  return {index, begin, std::min(chunk, size_ - begin)};
}

// All chunks before this one have been taken: if one of them fails as well, it is that one that is kept.
void Chunks::fail(std::size_t index) {
  next_ = count_;
  const std::lock_guard lock(mutex_);
  if (problem_ && index >= problem_at_) return;
  problem_at_ = index;
  problem_ = std::current_exception();
}

void Chunks::run(int threads, const std::function<void()>& worker) {
  // An exception that leaves a thread ends the program.
  const auto guarded = [&] {
    try {
      worker();
    } catch (...) {
      fail(count_);
    }
  };
  const auto team =
      std::min((count_ + per_thread - 1) / per_thread, static_cast<std::size_t>(std::max(1, threads)));
  {
    std::vector<std::jthread> others;
    for (std::size_t t = 1; t < team; ++t) others.emplace_back(guarded);
    guarded();
  }
  if (problem_) std::rethrow_exception(problem_);
}

}  // namespace assay
