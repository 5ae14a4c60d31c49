#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "assay/align/ladder/walk.h"

/// The pictures of an alignment's page, as SVG with a title and a description. Colours and sizes of text are
/// page/ladder.css.
namespace assay::align {

/// The stages from below, each with what came of its phases; the smallest that fail stand out.
std::string ladder_svg(const LadderResult&);

/// The ranks of a rung where the mesh has them, whom each talks to along which axis, and the groups of what
/// is wrong. Empty for a single rank, and for more than can be seen.
/// @param id  of this picture on its page
std::string ranks_svg(const Rung&, const std::vector<Traffic>& all, const std::vector<Traffic>& wrong,
                      std::string_view id);
/// Its lines by axis.
std::string ranks_legend(const std::vector<Traffic>& all, bool has_wrong);

}  // namespace assay::align
