#pragma once

#include <toml++/toml.h>
#include <string>
#include <string_view>

#include "assay/dumps/layout/layout_rules.h"

namespace assay {

/// Reads one table of [[mesh]], [[renumber]] or [[layout]] into the rules; false if `kind` is none of these.
/// @param where, source  the table in messages: "/a/rules.toml: [[mesh]] 1", "rules.toml, [[mesh]] 1"
/// @throws Error          that says what the table lacks
bool read_layout_table(LayoutRules&, std::string_view kind, const toml::table&, const std::string& where,
                      const std::string& source);

/// Throws Error unless `pattern` is a regular expression with at least `groups` groups.
void check_pattern(const std::string& pattern, std::size_t groups, const std::string& where);

}  // namespace assay
