#pragma once

#include <functional>
#include <string>
#include <vector>

#include "assay/align/ladder/divergence.h"

namespace assay::align {

struct LadderPlan {
  std::vector<Rung> rungs;
  std::filesystem::path cache = {};  ///< file that knows what passed before; empty: none
  std::string judged_by = {};  ///< rules, tolerances and program: what else decides whether a rung passes
  std::size_t jobs = 1;        ///< so many stages at the same time, where runs do not disturb each other
};

struct LadderResult {
  std::vector<ConfigurationCheck> files = {};  ///< of both configurations, before anything ran
  std::vector<RungResult> rungs;               ///< in the plan's order, and behind them those of the search
  std::vector<Divergence> divergences;         ///< independent ones, each of another smallest set
  std::vector<std::size_t> failing;  ///< rungs[failing[k]] is the smallest that shows divergences[k]
  double seconds = 0;

  /// 0: every rung passed; 1: a finding; 2: trouble in any rung, whatever else was found.
  int exit_status() const;
  /// Of the files, and of all rungs.
  std::vector<const ConfigurationCheck*> configuration() const;
  std::string_view verdict() const;
};

/// Takes out the larger rungs that the subject cannot tell from the full strategy: its command does not take
/// what they have more of.
void drop_repeats(std::vector<Rung>&, const Provider& subject);

/// Climbs the ladder. At a rung that fails, strategies are taken back one by one to the smallest set that
/// still fails; rungs that contain such a set are held, the others go on.
/// @param tell  called before each run ("tp + sp"), and after it with its result
LadderResult walk(const LadderPlan&, Opponents, const CheckOptions&,
                  const std::function<void(const Rung&, const RungResult*)>& tell);

}  // namespace assay::align
