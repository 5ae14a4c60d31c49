#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "assay/align/ladder/walk.h"

namespace assay::align {

/// Something that is known of a divergence: "because", "each rank holds a partial sum, ..".
struct LadderLine {
  std::string_view what;  ///< empty: belongs to the line before
  std::string text;
};

/// "tp + sp: first wrong in backward, step 0".
std::string headline(const Divergence&);
/// All that is known of it, most important first.
std::vector<LadderLine> lines_of(const Divergence&, const RungResult&);
/// headline() and lines_of() for a terminal or a log.
std::string text_of(const Divergence&, const RungResult&);

/// "all-reduce over tp of model.norm.weight, backward"; and its groups: "ranks 0 1 | 2 3".
std::string to_string(const Traffic&);
std::string groups_text(const Traffic&);

/// "2,576", "1 fail", "12 follow", "3 missing", "-".
std::string cell_text(const PhaseResult&);
/// How a phase did: 'P'assed, 'F'ailed, 'W' follows from another, 'N'othing of it was compared.
char mark(const PhaseResult&);
/// How a stage did, with the same letters; '-' for one that was left out.
char mark(RungResult::State);

/// "5 stages: 2 passed, 1 failed, 2 held".
std::string counts_text(const LadderResult&);
/// "single", "dimension", ..
std::string_view name(Rung::Kind);
inline constexpr std::string_view phase_names[] = {"forward", "backward", "optimizer"};

}  // namespace assay::align
