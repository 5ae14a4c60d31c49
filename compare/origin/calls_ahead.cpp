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

bool CallsAhead::begin(const LogicalTensor* made, std::function<std::optional<FirstLook>()> look) {
  const auto none = trouble_in([&] {
    begun_.emplace(made, std::async(std::launch::async, [look = std::move(look)] {
                     std::optional<FirstLook> found;
                     // Whoever asks meets the same trouble and says so.
                     (void)trouble_in([&] { found = look(); });
                     return found;
                   }));
  });
  return !none;
}

std::optional<FirstLook> CallsAhead::take(const LogicalTensor* made) {
  const auto found = begun_.find(made);
  if (found == begun_.end()) return {};
  auto look = found->second.get();
  begun_.erase(found);
  return look;
}

}  // namespace assay
