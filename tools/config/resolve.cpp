#include "assay/config/resolve.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

namespace assay::config {
namespace {

// Of the defaults that are called Hugging Face's (framework.h).
constexpr std::array<std::string_view, 7> families = {"deepseek_v3", "mixtral",   "qwen3_moe",    "qwen3",
                                                      "llama",       "telechat3", "telechat3_moe"};

std::string_view next_of(std::string_view& list, char separator) {
  const std::size_t end = std::min(list.find(separator), list.size());
  const std::string_view part = list.substr(0, end);
  list.remove_prefix(std::min(end + 1, list.size()));
  return part;
}

// The other side of a word's "=" in the list.
std::optional<std::string_view> mapped(std::string_view word, std::string_view list) {
  while (!list.empty()) {
    std::string_view pair = next_of(list, ',');
    if (next_of(pair, '=') == word) return pair;
  }
  return std::nullopt;
}

// "([0]*3+[1]*58)": 3; an integer is a frequency, 1 the one in which all layers have experts.
std::optional<double> dense_layers(std::string_view text) {
  std::string plain;
  for (const char c : text) {
    if (c != ' ' && c != '"' && c != '\'') plain += c;
  }
  while (plain.size() > 1 && plain.front() == '(' && plain.back() == ')')
    plain = plain.substr(1, plain.size() - 2);
  double layers = 0;
  std::string_view rest = plain;
  bool experts = false;
  while (!rest.empty()) {
    std::string_view part = next_of(rest, '+');
    const std::string_view list = next_of(part, '*');
    double times = 1;
    if (!part.empty()) {
      const auto [end, problem] = std::from_chars(part.data(), part.data() + part.size(), times);
      if (problem != std::errc() || end != part.data() + part.size()) return std::nullopt;
    }
    if (list != "[0]" && list != "[1]") return std::nullopt;
    if (list == "[1]") experts = true;
    if (list == "[0]" && experts) return std::nullopt;  // others than the first ones are dense
    if (list == "[0]") layers += times;
  }
  return experts ? std::optional(layers) : std::nullopt;
}

bool is_yes(const Value& value) {
  const Value yes = as_flag(value);
  if (yes.kind == Value::Kind::flag || yes.kind == Value::Kind::number) return yes.number != 0;
  return !yes.is_null() && lower(yes.text) != "none";
}

// Quotes are spelling: "4096" is 4096.
Value plain(const Value& value) {
  return value.kind == Value::Kind::text ? parse_value(value.text) : value;
}

}  // namespace

bool Resolved::is_torn() const {
  return std::any_of(stated.begin() + (stated.empty() ? 0 : 1), stated.end(),
                     [&](const Place& p) { return !same(p.value, stated.front().value); });
}

bool Resolver::has(Framework framework) const {
  return std::ranges::find(side_.sources, framework, &Source::framework) != side_.sources.end();
}

const Entry* Resolver::find(const Source& source, std::string_view path) {
  const Entry* entry = source.find(path);
  if (entry != nullptr) used_.emplace(&source, entry->path);
  return entry == nullptr || entry->value.is_null() ? nullptr : entry;
}

bool Resolver::is_met(const Source& source, std::string_view needs) {
  if (needs.empty()) return true;
  if (needs.front() == '!') return !is_met(source, needs.substr(1));
  const Entry* entry = find(source, needs);
  return entry != nullptr && is_yes(entry->value);
}

// Nothing: it is not stated, or says nothing of the key.
std::optional<Value> Resolver::read(const Source& source, const Name& name) {
  const Entry* entry = find(source, name.path);
  if (entry == nullptr || !is_met(source, name.needs)) return std::nullopt;
  const Value value = plain(entry->value);
  if (value.is_null()) return std::nullopt;
  if (value.kind == Value::Kind::open) return value;
  const std::string_view argument = name.reading.argument;
  switch (name.reading.kind) {
    case Reading::Kind::flag:
      return as_flag(value);
    case Reading::Kind::inverse: {
      const Value yes = as_flag(value);
      return yes.kind == Value::Kind::flag ? Value::of(yes.number == 0) : yes;
    }
    case Reading::Kind::dtype:
      return as_dtype(value);
    case Reading::Kind::word:
      return is_yes(value) ? std::optional(parse_value(argument)) : std::nullopt;
    case Reading::Kind::map:
    case Reading::Kind::implied: {
      const auto other = mapped(lower(value.text), argument);
      if (other) return other->empty() ? std::nullopt : std::optional(parse_value(*other));
      return name.reading.kind == Reading::Kind::map ? std::optional(value) : std::nullopt;
    }
    case Reading::Kind::times: {
      double product = value.number;
      for (std::string_view rest = argument; !rest.empty();) {
        const Entry* factor = find(source, next_of(rest, ','));
        if (factor == nullptr || plain(factor->value).kind != Value::Kind::number) return std::nullopt;
        product *= plain(factor->value).number;
      }
      return value.kind == Value::Kind::number ? std::optional(Value::of(product)) : std::nullopt;
    }
    case Reading::Kind::over: {
      const Entry* by = find(source, argument);
      const Value divisor = by == nullptr ? Value() : plain(by->value);
      if (value.kind != Value::Kind::number || divisor.kind != Value::Kind::number || divisor.number == 0)
        return std::nullopt;
      return Value::of(value.number / divisor.number);
    }
    case Reading::Kind::power:
      return value.kind == Value::Kind::number ? Value::of(std::exp2(value.number)) : value;
    case Reading::Kind::dense: {
      if (value.kind == Value::Kind::number) return value.number == 1 ? Value::of(0.0) : value;
      const auto layers = dense_layers(value.text);
      return layers ? Value::of(*layers) : value;
    }
    case Reading::Kind::as_is:
      break;
  }
  return value;
}

Resolved Resolver::operator()(const Key& key) {
  Resolved result;
  for (const Source& source : side_.sources) {
    bool found = false;
    for (const Name& name : key.names) {
      if (name.framework != source.framework) continue;
      const Entry* entry = source.find(name.path);
      const auto value = read(source, name);  // all of them: what nobody asks for is listed
      if (!value || found) continue;
      found = true;
      result.stated.push_back({*value, entry->place, source.framework});
    }
  }
  if (result.stated.empty()) result.otherwise = default_of(key);
  return result;
}

std::optional<Resolved::Place> Resolver::default_of(const Key& key) {
  for (const Source& source : side_.sources) {
    if (source.complete) continue;  // what it leaves out that program does not have
    if (source.framework == Framework::huggingface) {
      const Entry* type = source.find("model_type");
      if (type == nullptr || std::ranges::find(families, type->value.text) == families.end()) continue;
    }
    for (const Name& name : key.names) {
      if (name.framework != source.framework || name.otherwise.empty() || !is_met(source, name.needs))
        continue;
      const std::string whose = "default of " + std::string(row_of(source.framework).name);
      if (!name.otherwise.starts_with('='))
        return Resolved::Place{parse_value(name.otherwise), whose, source.framework};
      const auto other = std::ranges::find(keys(), name.otherwise.substr(1), &Key::name);
      if (other == keys().end()) continue;
      const Resolved of_other = (*this)(*other);
      if (of_other.best() != nullptr)
        return Resolved::Place{of_other.best()->value, fmt::format("{}: that of {}", whose, other->name),
                               source.framework};
    }
  }
  return std::nullopt;
}

}  // namespace assay::config
