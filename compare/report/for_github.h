#pragma once

#include <string>
#include <string_view>

/// Escapes for the pages and logs of GitHub.
namespace assay {

/// Escapes text for Markdown, so that it is shown as it is: no markup, no broken table cell, no notified
/// user. Cuts it to the given number of characters.
std::string markdown_text(std::string_view);

/// A line for the log of a workflow, "::error title=TITLE::MESSAGE".
/// @param name  "error", "notice", ..
std::string github_command(std::string_view name, std::string_view title, std::string_view message);

}  // namespace assay
