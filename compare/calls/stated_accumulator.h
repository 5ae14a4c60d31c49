#pragma once

#include <string>

namespace assay {

/// What parse_accumulator reads: the text itself, or what a .json file of `assay order` says. Throws Error
/// where it would.
std::string stated_accumulator(const std::string& text_or_file);

}  // namespace assay
