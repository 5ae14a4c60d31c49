#include <fmt/format.h>

#include "assay/config/readers.h"
#include "assay/golden/error.h"

namespace assay::config {
namespace {

Value value_of(const Json& json, const std::string& where) {
  if (json.is_null()) return {};
  if (const auto* flag = std::get_if<bool>(&json.value_)) return Value::of(*flag);
  if (json.is_string()) {
    const std::string& text = json.string(where);
    return text == "auto" ? Value::open(text) : Value::of(text);  // DeepSpeed's, filled in by the Trainer
  }
  if (const auto* whole = std::get_if<std::int64_t>(&json.value_)) return parse_value(std::to_string(*whole));
  return Value::of(*json.number());
}

void add(const Json& json, const std::string& path, const std::string& where, std::vector<Entry>& entries) {
  if (json.is_object()) {
    for (const auto& [key, member] : json.object(where))
      add(member, path.empty() ? key : path + "." + key, where, entries);
  } else if (json.is_array()) {
    std::size_t k = 0;
    for (const Json& item : json.array(where)) add(item, fmt::format("{}[{}]", path, k++), where, entries);
  } else {
    if (entries.size() == most_entries) throw Error("{}: more than {} values", where, most_entries);
    entries.push_back({path, value_of(json, where), where + ": " + path});
  }
}

}  // namespace

std::vector<Entry> read_json(const Json& json, const std::string& where) {
  std::vector<Entry> entries;
  add(json, "", where, entries);
  return entries;
}

}  // namespace assay::config
