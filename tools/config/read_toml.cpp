#include <fmt/format.h>
#include <toml++/toml.h>

#include <algorithm>

#include "assay/config/readers.h"
#include "assay/golden/error.h"

namespace assay::config {
namespace {

bool begins_a_key(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
         std::string_view("_-\"'").find(c) != std::string_view::npos;
}

// toml++ 3.3 takes for granted that a key follows [ or [[ at the beginning of a line: an assertion where they
// are on, and undefined behaviour where they are not.
void check_headers(std::string_view text, const std::string& where) {
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
        throw Error("{}:{}: a table without a name; expected TOML such as [training]", where, line);
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

Value value_of(const toml::node& node) {
  if (const auto flag = node.value_exact<bool>()) return Value::of(*flag);
  if (const auto whole = node.value_exact<std::int64_t>()) return parse_value(std::to_string(*whole));
  if (const auto number = node.value_exact<double>()) return Value::of(*number);
  if (const auto text = node.value_exact<std::string>()) return Value::of(*text);
  return Value::of(std::string("a date"));
}

void add(const toml::node& node, const std::string& path, const std::string& where, std::size_t depth,
         std::vector<Entry>& entries) {
  if (depth > most_depth) throw Error("{}: nested deeper than {}", where, most_depth);
  if (const toml::table* table = node.as_table()) {
    for (const auto& [key, member] : *table)
      add(member, path.empty() ? std::string(key.str()) : fmt::format("{}.{}", path, key.str()), where,
          depth + 1, entries);
  } else if (const toml::array* array = node.as_array()) {
    std::size_t k = 0;
    for (const toml::node& item : *array)
      add(item, fmt::format("{}[{}]", path, k++), where, depth + 1, entries);
  } else {
    if (entries.size() == most_entries) throw Error("{}: more than {} values", where, most_entries);
    entries.push_back({path, value_of(node), fmt::format("{}:{}", where, node.source().begin.line)});
  }
}

}  // namespace

std::vector<Entry> read_toml(std::string_view text, const std::string& where) {
  check_headers(text, where);
  toml::table root;
  try {
    root = toml::parse(text);
  } catch (const toml::parse_error& e) {
    throw Error("{}:{}: {}; expected TOML", where, e.source().begin.line, e.description());
  }
  std::vector<Entry> entries;
  add(root, "", where, 0, entries);
  return entries;
}

}  // namespace assay::config
