#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "assay/align/settings/strategy.h"

namespace assay::align {

/// A part of a strategy that can be on or off by itself: "tp", "sp", "zero", "recompute", .. (strategy.h).
struct Switch {
  std::string_view name, dimension;
  std::vector<std::string_view> needs;
  bool is_on(const Parallel& p) const { return align::is_on(name, p); }
};
/// All, dimension after dimension.
const std::vector<Switch>& switches();

using SwitchSet = std::set<std::string_view>;
SwitchSet switches_of(const Parallel&);
/// The strategy with these of its switches alone.
Parallel with_only(const Parallel& target, const SwitchSet&);
/// Without those that need what is missing.
SwitchSet supported(SwitchSet);
/// The dimensions of the strategy, each with all of its switches, in the order of the table.
std::vector<SwitchSet> dimensions_of(const Parallel&);
/// "tp + sp"; of none "a single device".
std::string to_string(const SwitchSet&);

}  // namespace assay::align
