#pragma once

#include <set>
#include <string>
#include <vector>

#include "assay/align/ladder/rung.h"
#include "assay/align/planning/estimate.h"

namespace assay::align {

/// What training exercises, each by a name for a report: the parts of a strategy as they are used ("tp",
/// "schedule=dualpipe"), their pairs, and what only some sizes have (more than two ranks, stages of different
/// lengths, several experts a rank, ranks that get no token).
struct Path {
  std::string name;
  std::set<std::string_view> parts;  ///< of the strategy, to which it belongs
  auto operator<=>(const Path&) const = default;
};
std::set<Path> paths_of(const Model&, const Work&, const Parallel&);

/// Stages that exercise what strategies do, at the smallest sizes.
struct Cover {
  std::vector<Rung> rungs;
  std::set<Path> paths;              ///< that they have to exercise
  std::vector<std::string> missing;  ///< of these, those that no stage of 16 ranks exercises
  bool is_smallest = false;          ///< it is proven that fewer stages do not
};

/// A single device, each part of a strategy alone with what it needs, and as few other stages as together
/// have every path of the strategies.
/// @param small    the model and the work of stages: strategies are cut to it
/// @param changed  parts; none: all. Else only stages and paths with one of them
/// @throws Error   if no strategy has a part that changed
Cover cover(const Training&, const std::vector<Parallel>& strategies, const Work& small,
            const std::set<std::string_view>& changed);

/// The model cut to a size for stages: its own preset "-tiny", or itself with sizes that keep its kinds
/// (docs/align.md), as load_model takes it.
std::string small_model(const std::string& model);

/// The parts of a strategy in which "tp=4:tp=8" differ.
/// @throws Error  if these are no strategies, or the same
std::set<std::string_view> changed_parts(const std::string& text);

}  // namespace assay::align
