#pragma once

#include <cstddef>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "assay/compare/report/report.h"

/// The parts of the terminal's report.
namespace assay {

using Lines = std::vector<std::string>;

/// Broken between words; a word that is too long stays whole, and no line begins with "::": a machine that
/// reads the log could take that for a command (GitHub's ::error::).
/// @param most  lines; if it takes more, the last one ends in ".."
Lines wrapped(std::string_view text, std::size_t room,
              std::size_t most = std::numeric_limits<std::size_t>::max());

/// Returns the width of the style minus this number of columns.
std::size_t room_behind(std::size_t columns, const TextStyle&);

/// Returns the report of one tensor in about a dozen lines: the difference, its cause, and the command that
/// repeats it.
Lines finding_lines(const Finding&, const TextStyle&);

}  // namespace assay
