#pragma once

#include <span>
#include <string>

namespace assay {

/// The `assay` command: runs what the command line says. What goes wrong is said on standard error.
/// @param words  the command line, the program's name first
/// @return       the exit status
int run_program(std::span<char*> words);

/// The file that holds this code: the program, or the library of another one that it is part of.
std::string program_file();

}  // namespace assay
