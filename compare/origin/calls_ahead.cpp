#include "assay/compare/origin/calls_ahead.h"

#include <algorithm>
#include <utility>

#include "assay/compare/result/trouble.h"

namespace assay {
namespace {

// Each holds the tensors of a call and some matrices of their size.
constexpr int most_at_once = 7;

}  // namespace

CallsAhead::CallsAhead(int threads)
    : most_(static_cast<std::size_t>(std::clamp(threads - 1, 0, most_at_once))) {}

bool CallsAhead::begin(const LogicalTensor* made, std::function<std::optional<FirstLook>()> find) {
  Look& look = begun_[made];
  const auto none = trouble_in([&] {
    look.thread = std::async(std::launch::async, [this, &look, find = std::move(find)] {
      const Crew::Member member(crew_, look.is_done);
      // Whoever asks meets the same trouble and says so.
      (void)trouble_in([&] { look.found = find(); });
    });
  });
  if (none) begun_.erase(made);
  return !none;
}

std::optional<FirstLook> CallsAhead::take(const LogicalTensor* made) {
  const auto found = begun_.find(made);
  if (found == begun_.end()) return {};
  Look& look = found->second;
  crew_.help_until(look.is_done);
  look.thread.get();
  auto first = std::move(look.found);
  begun_.erase(found);
  return first;
}

}  // namespace assay
