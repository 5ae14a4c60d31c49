#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "assay/dumps/record/dump.h"

namespace assay {

/// Whether `text` matches a pattern in which '*' stands for any run of characters and '?' for one.
bool glob_match(std::string_view pattern, std::string_view text);

/// What the globs of a rules file are held against: "module.slot.arg" and its shorter forms.
std::vector<std::string> paths_of(const Identity&);

/// The pattern matches one of the paths.
bool glob_match(std::string_view pattern, const std::vector<std::string>& paths);

}  // namespace assay
