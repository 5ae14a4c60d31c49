#include "assay/align/settings/selection.h"

#include <algorithm>
#include <charconv>
#include <optional>

#include "assay/align/settings/settings_keys.h"
#include "assay/dumps/record/glob.h"
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
    : patterns_(std::move(patterns)), text_(steps) {
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
  const bool is_wanted = patterns_.empty() || std::ranges::any_of(patterns_, [&](const std::string& pattern) {
                           return glob_match(pattern, paths_of(id));
                         });
  return is_wanted && has_step(id.step);
}

std::vector<std::string> Selection::unmet(std::span<const Record> written) const {
  std::vector<std::string> unmet = patterns_;
  for (const Record& record : written) {
    if (unmet.empty()) break;
    std::erase_if(unmet,
                  [&](const std::string& pattern) { return glob_match(pattern, paths_of(record.id)); });
  }
  return unmet;
}

}  // namespace assay::align
