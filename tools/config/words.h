#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace assay::config {

/// A word of a shell script, its quotes taken off.
struct Word {
  std::string text = {};
  std::size_t line = 0;
  bool ends_command = false;               ///< a line's end, ;, |, && or >: not a word
  std::size_t quoted = std::string::npos;  ///< where its quoted part begins
  bool open = false;                       ///< it has a variable that nobody has set
};

/// As a shell cuts them; comments and lines that are continued are gone. Inside of ( ) a line's end is a
/// space: an array.
/// @param variables  what "$NAME" and "${NAME}" and "${NAME:-default}" stand for; grows by NAME=text
std::vector<Word> words_of(std::string_view script, std::size_t first_line,
                           std::map<std::string, std::string, std::less<>>& variables);

/// "NAME" of "NAME=..", or nothing.
std::string_view assigned_name(std::string_view word);

}  // namespace assay::config
