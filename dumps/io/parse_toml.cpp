#include "assay/dumps/io/parse_toml.h"

#include <algorithm>

#include "assay/golden/error.h"

namespace assay {
namespace {

bool begins_a_key(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
         std::string_view("_-\"'").find(c) != std::string_view::npos;
}

// toml++ 3.3 takes for granted that a key follows [ or [[ at the beginning of a line: an assertion where they
// are on, and undefined behaviour where they are not.
void check_headers(std::string_view text, const std::string& where, std::string_view expected) {
  std::size_t at = 0, line = 1;
  int depth = 0;  // of [ and { in values
  bool begins = true;
  const auto skip_string = [&] {
    const char quote = text[at];
    const std::string three(3, quote);
    const bool is_long = text.substr(at, 3) == three;
    for (at += is_long ? 3 : 1; at < text.size(); ++at) {
      if (text[at] == '\n' && !is_long) return;  // not closed: toml++ says so
      if (text[at] == '\n') ++line;
      if (quote == '"' && text[at] == '\\') {
        ++at;
        if (at < text.size() && text[at] == '\n') ++line;
      } else if (is_long ? text.substr(at, 3) == three : text[at] == quote) {
        at += is_long ? 3 : 1;
        return;
      }
    }
  };
  while (at < text.size()) {
    const char c = text[at];
    if (c == '\n') {
      ++line;
      ++at;
      begins = begins || depth == 0;
    } else if (c == ' ' || c == '\t' || c == '\r') {
      ++at;
    } else if (c == '#') {
      at = std::min(text.find('\n', at), text.size());
    } else if (begins && c == '[') {
      std::size_t name = at + (text.substr(at, 2) == "[[" ? 2 : 1);
      while (name < text.size() && (text[name] == ' ' || text[name] == '\t')) ++name;
      if (name == text.size() || (!begins_a_key(text[name]) && text[name] != ']'))
        throw Error("{}:{}: a table without a name; expected {}", where, line, expected);
      at = std::min(text.find('\n', at), text.size());
    } else {
      begins = false;
      if (c == '"' || c == '\'') {
        skip_string();
        continue;
      }
      if (c == '[' || c == '{') ++depth;
      if ((c == ']' || c == '}') && depth > 0) --depth;
      ++at;
    }
  }
}

}  // namespace

toml::table parse_toml(std::string_view text, const std::string& where, std::string_view expected) {
  check_headers(text, where, expected);
  try {
    return toml::parse(text);
  } catch (const toml::parse_error& e) {
    throw Error("{}:{}: {}; expected {}", where, e.source().begin.line, e.description(), expected);
  }
}

}  // namespace assay
