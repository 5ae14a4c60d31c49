#pragma once

#include <span>

#include "verb.h"

namespace assay {

/// Runs the verb that the command line names, or shows the help that it asks for. What cannot be parsed is
/// said on standard error.
/// @param words  the command line, the program's name first
/// @param verbs  in the order of --help
/// @return       the exit status
/// @throws Error if the verb meets trouble
int run_command_line(std::span<char*> words, std::span<const Verb* const> verbs);

}  // namespace assay
