#pragma once

#include <string>
#include <string_view>

/// What GitHub's pages and logs could misread, escaped.
namespace assay {

/// Text for Markdown that is shown as it is: no markup, no table cell broken, nobody notified; so many
/// characters of it at most.
std::string markdown_text(std::string_view);

/// A line for the log of a workflow, "::error title=TITLE::MESSAGE".
/// @param name  "error", "notice", ..
std::string github_command(std::string_view name, std::string_view title, std::string_view message);

}  // namespace assay
