#include "assay/compare/causes/values/index_set_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>

namespace assay {
namespace {

struct Run {
  std::int64_t first, last;
};

std::vector<Run> runs_of(const std::vector<bool>& holds) {
  std::vector<Run> runs;
  for (std::size_t i = 0; i < holds.size(); ++i) {
    if (!holds[i]) continue;
    const auto at = static_cast<std::int64_t>(i);
    if (i > 0 && holds[i - 1]) {
      runs.back().last = at;
    } else {
      runs.push_back({at, at});
    }
  }
  return runs;
}

std::string plural(const std::string& one) {
  return one == "index" ? "indices" : one + "s";
}

std::string to_text(const Run& r) {
  return r.first == r.last ? fmt::format("{}", r.first) : fmt::format("{}..{}", r.first, r.last);
}

// The shard that a known size cuts there: " (= 1 of 4 by tp)".
std::string shard(const Run& r, std::int64_t n, std::span<const KnownSize> sizes) {
  const std::int64_t length = r.last - r.first + 1;
  for (const KnownSize& s : sizes) {
    if (s.size > 1 && length * s.size == n && r.first % length == 0)
      return fmt::format(" (= shard {} of {} by {})", r.first / length, s.size, s.name);
  }
  return "";
}

// The shortest period, at most half of the set's extent, with one run of indices in each.
std::optional<IndexSetText> periodic(const std::vector<bool>& holds, const std::string& one) {
  const auto n = static_cast<std::int64_t>(holds.size());
  constexpr std::int64_t longest = 1 << 12;
  for (std::int64_t m = 2; m * 2 <= n && m <= longest; ++m) {
    bool repeats = true;
    for (std::int64_t i = m; repeats && i < n; ++i)
      repeats = holds[static_cast<std::size_t>(i)] == holds[static_cast<std::size_t>(i - m)];
    if (!repeats) continue;
    std::vector<bool> first(holds.begin(), holds.begin() + static_cast<std::ptrdiff_t>(m));
    const std::vector<Run> runs = runs_of(first);
    if (runs.size() != 1) return std::nullopt;
    const double bits = 3 * std::log2(static_cast<double>(m));
    const std::string residues = to_text(runs[0]);
    if (runs[0].first == runs[0].last) {
      const char* ordinal = m == 2 ? "nd" : m == 3 ? "rd" : "th";
      return IndexSetText{fmt::format("every {}{} {} (index = {} mod {})", m, ordinal, one, residues, m),
                          bits};
    }
    return IndexSetText{fmt::format("the {} with index in {} mod {}", plural(one), residues, m), bits};
  }
  return std::nullopt;
}

}  // namespace

IndexSetText describe_index_set(const std::vector<bool>& holds, const std::string& one,
                                std::span<const KnownSize> sizes) {
  const auto n = static_cast<std::int64_t>(holds.size());
  const double bits_of_index = std::log2(static_cast<double>(n));
  const std::vector<Run> runs = runs_of(holds);
  if (runs.size() == 1) {
    const Run r = runs[0];
    const std::int64_t length = r.last - r.first + 1;
    const std::string cut = shard(r, n, sizes);
    const bool at_end = r.first == 0 || r.last == n - 1;
    const double bits = !cut.empty() ? 4 : at_end ? 1 + bits_of_index : 2 * bits_of_index;
    if (length == 1) return {fmt::format("{} {}{}", one, r.first, cut), bits_of_index};
    if (length * 2 == n)
      return {fmt::format("the {} half of the {}{}", r.first == 0 ? "first" : "last", plural(one), cut),
              bits};
    if (r.last == n - 1) return {fmt::format("the last {} {}{}", length, plural(one), cut), bits};
    if (r.first == 0) return {fmt::format("the first {} {}{}", length, plural(one), cut), bits};
    return {fmt::format("{} {}{}", plural(one), to_text(r), cut), bits};
  }
  if (auto text = periodic(holds, one)) return *text;
  const auto count = std::ranges::count(holds, true);
  // Which of the sets of that many runs or indices.
  const double bits =
      2 * bits_of_index *
      static_cast<double>(std::min<std::size_t>(runs.size(), static_cast<std::size_t>(count)));
  if (runs.size() > 6) return {fmt::format("{} of {} {}", count, n, plural(one)), bits};
  std::string list;
  for (const Run& r : runs) list += (list.empty() ? "" : ", ") + to_text(r);
  return {fmt::format("{} {}", plural(one), list), bits};
}

}  // namespace assay
