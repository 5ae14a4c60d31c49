#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "assay/golden/dtype.h"

/// Numbers and names as texts for people. Names come from files that nobody vouches for.
namespace assay {

/// Control characters, invalid UTF-8 and direction overrides as \x1b, the rest as it is.
std::string printable(std::string_view);
/// The same for an element or a quoted attribute of HTML or XML: its marks as &lt; and so on.
std::string html_text(std::string_view);
/// The shortest digits that read back to the same value of that dtype: 0.1 for a float32.
std::string format_value(DType, double);
/// A word for a shell to read back: quoted where it needs quotes.
std::string shell_quoted(std::string_view);
/// " --only 'NAME'" for a shell to read back. What a terminal should not be shown becomes '?', which matches
/// it.
std::string only_option(std::string_view name);
/// 12390 -> "12,390".
std::string grouped(std::int64_t);

}  // namespace assay
