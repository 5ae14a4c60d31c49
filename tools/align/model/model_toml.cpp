#include "assay/align/model/model_toml.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <functional>
#include <map>
#include <set>
#include <sstream>
#include <type_traits>

#include "assay/align/model/model_fields.h"
#include "assay/align/settings/settings_keys.h"
#include "assay/dumps/io/parse_toml.h"
#include "assay/golden/error.h"

namespace assay::align {
namespace {

// The value of a field as an error shows it: its kind, or the number itself.
std::string found(const toml::node& node) {
  if (const auto number = node.value_exact<std::int64_t>()) return std::to_string(*number);
  if (const auto number = node.value_exact<double>()) return fmt::format("{}", *number);
  if (const auto text = node.value_exact<std::string>()) return fmt::format("\"{}\"", *text);
  if (const auto flag = node.value_exact<bool>()) return *flag ? "true" : "false";
  return node.is_table() ? "a table" : "a list";
}

class Reader {
 public:
  Reader(const toml::table& root, const std::string& where) : root_(root), where_(where) {}

  template <class T>
  void operator()(const Field& field, T& member) {
    known_.insert(full_key(field));
    tables_.insert(std::string(field.table));
    const toml::table* table = field.table.empty() ? &root_ : root_[field.table].as_table();
    const toml::node* node = table == nullptr ? nullptr : table->get(field.key);
    if (node != nullptr) read(field, *node, member);
  }

  void check_keys() const {
    for (const auto& [key, node] : root_) {
      if (!node.is_table()) {
        check_key(std::string(key.str()));
        continue;
      }
      if (!tables_.contains(std::string(key.str()))) check_key(std::string(key.str()));
      for (const auto& [inner, value] : *node.as_table())
        check_key(fmt::format("{}.{}", key.str(), inner.str()));
    }
  }

 private:
  void check_key(const std::string& key) const {
    if (!known_.contains(key))
      throw Error("{}: has a key '{}', which no model has; expected one of {}", where_, key,
                  fmt::join(known_, ", "));
  }
  [[noreturn]] void refuse(const Field& field, const toml::node& node, const std::string& expected) const {
    throw Error("{}: '{}' is {}; expected {}", where_, full_key(field), found(node), expected);
  }
  void read(const Field& field, const toml::node& node, std::int64_t& member) const {
    const auto value = node.value_exact<std::int64_t>();
    if (!value) refuse(field, node, "an integer");
    member = *value;
  }
  void read(const Field& field, const toml::node& node, double& member) const {
    if (const auto integer = node.value_exact<std::int64_t>())
      member = static_cast<double>(*integer);
    else if (const auto value = node.value_exact<double>())
      member = *value;
    else
      refuse(field, node, "a number");
  }
  void read(const Field& field, const toml::node& node, bool& member) const {
    const auto value = node.value_exact<bool>();
    if (!value) refuse(field, node, "true or false");
    member = *value;
  }
  void read(const Field& field, const toml::node& node, std::string& member) const {
    const auto value = node.value_exact<std::string>();
    if (!value) refuse(field, node, "a string");
    member = *value;
  }
  template <class E>
  requires std::is_enum_v<E>
  void read(const Field& field, const toml::node& node, E& member) const {
    const std::string value = node.value_exact<std::string>().value_or("");
    const auto at = std::ranges::find(names_of<E>, value);
    if (at == names_of<E>.end()) refuse(field, node, fmt::format("one of {}", fmt::join(names_of<E>, ", ")));
    member = static_cast<E>(at - names_of<E>.begin());
  }

  const toml::table& root_;
  const std::string& where_;
  std::set<std::string> known_, tables_;
};

std::string text_of(std::int64_t v) {
  return std::to_string(v);
}
std::string text_of(double v) {
  const std::string text = fmt::format("{}", v);
  return text.find_first_of(".e") == std::string::npos ? text + ".0" : text;
}
std::string text_of(bool v) {
  return v ? "true" : "false";
}
std::string text_of(const std::string& v) {
  std::ostringstream out;
  out << toml::value<std::string>(v);
  return out.str();
}
template <class E>
requires std::is_enum_v<E> std::string text_of(E v) {
  return fmt::format("\"{}\"", names_of<E>[static_cast<std::size_t>(v)]);
}

}  // namespace

namespace {

Model read(Model model, std::string_view text, const std::string& where) {
  const toml::table root = parse_toml(text, where, "a model in TOML");
  Reader reader(root, where);
  for_each_field(model, std::ref(reader));
  reader.check_keys();
  return model;
}

// A word is a string's value, or an enumerator's.
bool is_word(std::string_view value) {
  return !value.empty() && std::isalpha(static_cast<unsigned char>(value.front())) != 0 && value != "true" &&
         value != "false";
}

}  // namespace

Model model_from_toml(std::string_view text, const std::string& where) {
  return read({}, text, where);
}

Model changed(const Model& model, std::string_view changes, const std::string& where) {
  std::map<std::string_view, std::string> last;  // of a key that is given twice the last value counts
  for (const std::string_view change : split(changes, ',')) {
    const std::size_t equals = change.find('=');
    if (equals == std::string_view::npos || equals == 0 || equals + 1 == change.size())
      throw Error("{}: '{}' changes nothing; expected key=value, as in moe.top_k=1", where, change);
    const std::string_view value = change.substr(equals + 1);
    const char* quote = is_word(value) ? "\"" : "";
    const std::string_view key = change.substr(0, equals);
    last[key] = fmt::format("{} = {}{}{}\n", key, quote, value, quote);
  }
  std::string text;
  for (const auto& [key, line] : last) text += line;
  try {
    return read(model, text, where);
  } catch (const Error& e) {
    throw Error("{} (in what follows the first comma)", e.what());
  }
}

std::string to_toml(const Model& model) {
  std::string out, table;
  for_each_field(model, [&](const Field& field, const auto& member) {
    if (field.table != table) out += fmt::format("\n[{}]\n", table = field.table);
    out += fmt::format("{} = {}\n", field.key, text_of(member));
  });
  return out;
}

}  // namespace assay::align
