#include "assay/align/selection.h"

#include <algorithm>
#include <charconv>
#include <optional>

#include "assay/align/settings_keys.h"
#include "assay/dumps/glob.h"
#include "assay/golden/error.h"

namespace assay::align {
namespace {

std::optional<std::int64_t> number_in(std::string_view text) {
  std::int64_t number = 0;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool is_number = problem == std::errc() && end == text.data() + text.size() && number >= 0;
  return is_number ? std::optional(number) : std::nullopt;
}

}  // namespace

Selection::Selection(std::vector<std::string> patterns, std::string_view steps)
    : patterns_(std::move(patterns)),
      met_(std::make_shared<std::deque<std::atomic<bool>>>(patterns_.size())) {
  for (const std::string_view range : split(steps, ',')) {
    const std::size_t dash = std::min(range.find('-'), range.size());
    const auto first = number_in(range.substr(0, dash)),
               last = dash < range.size() ? number_in(range.substr(dash + 1)) : first;
    if (!first || !last || *last < *first)
      throw Error("'{}' are no steps; expected numbers and ranges, such as 0,2-5", range);
    steps_.emplace_back(*first, *last);
  }
}

bool Selection::has_step(std::int64_t step) const {
  return steps_.empty() || std::ranges::any_of(steps_, [&](const auto& range) {
           return range.first <= step && step <= range.second;
         });
}

bool Selection::has(const Identity& id) const {
  if (!has_step(id.step)) return false;
  bool is_wanted = patterns_.empty();
  for (std::size_t k = 0; k < patterns_.size(); ++k) {
    if (!glob_match(patterns_[k], paths_of(id))) continue;
    (*met_)[k] = true;
    is_wanted = true;
  }
  return is_wanted;
}

std::vector<std::string> Selection::unmet() const {
  std::vector<std::string> all;
  for (std::size_t k = 0; k < patterns_.size(); ++k) {
    if (!(*met_)[k]) all.push_back(patterns_[k]);
  }
  return all;
}

}  // namespace assay::align
