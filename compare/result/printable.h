#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "assay/golden/dtype.h"

/// Numbers and names as texts for people. Names come from files that are not trusted.
namespace assay {

/// Replaces control characters, invalid UTF-8 and direction overrides by escapes like \x1b.
std::string printable(std::string_view);
/// Escapes text for an element or a quoted attribute of HTML or XML, after printable().
std::string html_text(std::string_view);
/// Returns the shortest decimal that reads back as the same value of that dtype: 0.1 for a float32.
std::string format_value(DType, double);
/// Quotes a word for a shell, if it needs quotes.
std::string shell_quoted(std::string_view);
/// Returns " --only 'NAME'", quoted for a shell. A character that a terminal must not show becomes '?', a
/// glob that matches it.
std::string only_option(std::string_view name);
/// 12390 -> "12,390".
std::string grouped(std::int64_t);

}  // namespace assay
