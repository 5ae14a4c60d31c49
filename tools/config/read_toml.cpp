#include <fmt/format.h>

#include "assay/config/readers.h"
#include "assay/dumps/io/parse_toml.h"
#include "assay/golden/error.h"

namespace assay::config {
namespace {

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
  const toml::table root = parse_toml(text, where, "TOML");
  std::vector<Entry> entries;
  add(root, "", where, 0, entries);
  return entries;
}

}  // namespace assay::config
