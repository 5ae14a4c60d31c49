#pragma once

#include <toml++/toml.h>

#include <string>
#include <string_view>

namespace assay {

/// @param expected  what the file should be, for errors: "a plan in TOML"
/// @throws Error  with the line, where it is no TOML
toml::table parse_toml(std::string_view text, const std::string& where, std::string_view expected);

}  // namespace assay
