#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "assay/dumps/record/dump.h"

namespace assay {

/// Returns whether `text` matches a pattern. '*' stands for any characters, '?' for one character.
bool glob_match(std::string_view pattern, std::string_view text);

/// Returns the texts that the globs of a rules file are matched with: "module.slot.arg" and its shorter
/// forms.
std::vector<std::string> paths_of(const Identity&);

/// Returns whether the pattern matches one of the paths.
bool glob_match(std::string_view pattern, const std::vector<std::string>& paths);

}  // namespace assay
