#pragma once

#include <toml++/toml.h>
#include <string>
#include <string_view>

#include "assay/dumps/layout/layout_rules.h"

namespace assay {

/// Reads one [[mesh]], [[renumber]] or [[layout]] table into the rules. Returns false if `kind` is another
/// table.
/// @param where  the table in messages: "/a/rules.toml: [[mesh]] 1"
/// @param source  the table in reports: "rules.toml, [[mesh]] 1"
/// @throws Error  if a key is missing, unknown or has the wrong type
bool read_layout_table(LayoutRules&, std::string_view kind, const toml::table&, const std::string& where,
                       const std::string& source);

/// Throws Error unless `pattern` is a regular expression with at least `groups` groups.
void check_pattern(const std::string& pattern, std::size_t groups, const std::string& where);

}  // namespace assay
