#pragma once

#include <toml++/toml.h>
#include <optional>
#include <string>
#include <string_view>

#include "assay/golden/error.h"

namespace assay {

/// The string under a key. Throws Error ("<where>: ..") if there is none or it is empty.
inline std::string required_text(const toml::table& table, std::string_view key, const std::string& where) {
  const std::optional<std::string> value = table[key].value<std::string>();
  if (!value || value->empty()) throw Error("{}: '{}' is missing; expected a string", where, key);
  return *value;
}

}  // namespace assay
