#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <string>

namespace assay {

/// The verbs with their options, as --help shows them. Parsing a command line sets `action` to what it asks
/// for.
/// @param command  the command line, for reports
/// @param action   must outlive the app
void add_verbs(CLI::App&, const std::string& command, std::function<int()>& action);

}  // namespace assay
