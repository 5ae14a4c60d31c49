#include "assay/align/ladder/switches.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

namespace assay::align {

namespace {

std::vector<Switch> parts_of_strategies() {
  std::vector<Switch> all;
  for (const Strategy& s : strategies()) {
    if (s.key() != s.part) continue;
    auto behind = all.end();  // the last of its dimension
    while (behind != all.begin() && std::prev(behind)->dimension != s.dimension) --behind;
    all.insert(behind == all.begin() ? all.end() : behind, {s.part, s.dimension, s.needs});
  }
  return all;
}

}  // namespace

const std::vector<Switch>& switches() {
  static const std::vector<Switch> all = parts_of_strategies();
  return all;
}

SwitchSet switches_of(const Parallel& p) {
  SwitchSet on;
  for (const Switch& s : switches()) {
    if (s.is_on(p)) on.insert(s.name);
  }
  return on;
}

Parallel with_only(const Parallel& target, const SwitchSet& on) {
  Parallel p;
  for (const Strategy& s : strategies()) {
    if (s.part.empty() || on.contains(s.part)) s.copy(p, target);
  }
  if (p.vpp != target.vpp) p.stages.clear();  // they are the layers of as many chunks
  return p;
}

SwitchSet supported(SwitchSet on) {
  for (const Switch& s : switches()) {
    const bool has_support =
        s.needs.empty() || std::ranges::any_of(s.needs, [&](std::string_view n) { return on.contains(n); });
    if (!has_support) on.erase(s.name);
  }
  return on;
}

std::vector<SwitchSet> dimensions_of(const Parallel& p) {
  std::vector<SwitchSet> all;
  std::string_view last;
  for (const Switch& s : switches()) {
    if (!s.is_on(p)) continue;
    if (all.empty() || s.dimension != last) all.emplace_back();
    last = s.dimension;
    all.back().insert(s.name);
  }
  return all;
}

std::string to_string(const SwitchSet& on) {
  std::string text;
  for (const Switch& s : switches()) {
    if (on.contains(s.name)) text += fmt::format("{}{}", text.empty() ? "" : " + ", s.name);
  }
  return text.empty() ? "a single device" : text;
}

}  // namespace assay::align
