#include <charconv>
#include <cmath>
#include <map>

#include "assay/golden/error.h"
#include "assay/operators/engine/golden.h"

namespace assay {
namespace {

constexpr std::string_view kind_names[] = {"null", "a boolean", "a number", "a string", "a list of numbers"};
std::string_view kind(const AttributeValue& v) {
  return kind_names[v.index()];
}

std::string_view trimmed(std::string_view text) {
  const auto first = text.find_first_not_of(" \t\n");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t\n") - first + 1);
}

double parse_number(std::string_view text) {
  double value = 0;
  const std::string_view digits = trimmed(text);
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  // from_chars also reads "nan" and "inf".
  if (error != std::errc() || end != digits.data() + digits.size() || !std::isfinite(value)) {
    throw Error(
        "'{}' is no attribute value; expected a number, true, false, null, a \"string\" or a [list, of, "
        "numbers]",
        text);
  }
  return value;
}

}  // namespace

AttributeValue parse_attribute(std::string_view given) {
  const std::string_view text = trimmed(given);
  if (text == "null") return std::monostate();
  if (text == "true") return true;
  if (text == "false") return false;
  if (text.size() >= 2 && text.front() == '"' && text.back() == '"')
    return std::string(text.substr(1, text.size() - 2));
  if (text.size() >= 2 && text.front() == '[' && text.back() == ']') {
    std::vector<double> list;
    std::string_view rest = trimmed(text.substr(1, text.size() - 2));
    while (!rest.empty()) {
      const auto comma = rest.find(',');
      list.push_back(parse_number(rest.substr(0, comma)));
      rest = comma == std::string_view::npos ? std::string_view() : rest.substr(comma + 1);
    }
    return list;
  }
  return parse_number(text);
}

const AttributeValue& Attributes::at(std::string_view name) const {
  const auto found = values_.find(name);
  if (found == values_.end()) throw Error("attribute '{}' is not set", name);
  return found->second;
}

bool Attributes::has(std::string_view name) const {
  const auto found = values_.find(name);
  return found != values_.end() && !std::holds_alternative<std::monostate>(found->second);
}

double Attributes::real(std::string_view name) const {
  const double* value = std::get_if<double>(&at(name));
  if (value == nullptr) throw Error("attribute '{}' is {}; expected a number", name, kind(at(name)));
  return *value;
}

namespace {
std::int64_t whole(std::string_view name, double value) {
  if (value != std::floor(value) || std::abs(value) > 0x1p53) {
    throw Error("attribute '{}' is {}; expected an integer", name, value);
  }
  return static_cast<std::int64_t>(value);
}
}  // namespace

std::int64_t Attributes::integer(std::string_view name) const {
  return whole(name, real(name));
}

std::vector<std::int64_t> Attributes::integers(std::string_view name) const {
  std::vector<std::int64_t> integers;
  for (const double value : list(name)) integers.push_back(whole(name, value));
  return integers;
}

bool Attributes::flag(std::string_view name) const {
  const bool* value = std::get_if<bool>(&at(name));
  if (value == nullptr) throw Error("attribute '{}' is {}; expected true or false", name, kind(at(name)));
  return *value;
}

const std::string& Attributes::text(std::string_view name) const {
  const std::string* value = std::get_if<std::string>(&at(name));
  if (value == nullptr) throw Error("attribute '{}' is {}; expected a string", name, kind(at(name)));
  return *value;
}

std::vector<double> Attributes::list(std::string_view name) const {
  if (const double* single = std::get_if<double>(&at(name))) return {*single};
  const auto* value = std::get_if<std::vector<double>>(&at(name));
  if (value == nullptr) throw Error("attribute '{}' is {}; expected a list of numbers", name, kind(at(name)));
  return *value;
}

namespace {
Attributes read_initial(const Operator& op) {
  Attributes initial;
  for (const Attribute& attribute : op.attributes)
    initial.set(std::string(attribute.name), parse_attribute(attribute.initial));
  return initial;
}

// Read once: an operator may be called many thousand times.
Attributes initial_attributes(const Operator& op) {
  static const std::map<const Operator*, Attributes> of_listed = [] {
    std::map<const Operator*, Attributes> initial;
    for (const Operator* listed : operators()) initial.emplace(listed, read_initial(*listed));
    return initial;
  }();
  const auto found = of_listed.find(&op);
  return found == of_listed.end() ? read_initial(op) : found->second;
}
}  // namespace

Attributes complete_attributes(const Operator& op, const Attributes& given) {
  Attributes all = initial_attributes(op);
  for (const auto& [name, value] : given.values()) {
    const auto declared = all.values().find(name);
    if (declared == all.values().end()) {
      std::string known;
      for (const Attribute& attribute : op.attributes)
        known += (known.empty() ? "" : ", ") + std::string(attribute.name);
      throw Error("{} has no attribute '{}'; it has {}", op.name, name, known.empty() ? "none" : known);
    }
    const AttributeValue& initial = declared->second;
    // JSON writes no infinity.
    const std::string* text = std::get_if<std::string>(&value);
    if (std::holds_alternative<double>(initial) && text != nullptr && (*text == "inf" || *text == "-inf")) {
      all.set(name, *text == "inf" ? infinity : -infinity);
      continue;
    }
    const bool open =
        std::holds_alternative<std::monostate>(initial) || std::holds_alternative<std::monostate>(value);
    const bool list_of_one =
        std::holds_alternative<std::vector<double>>(initial) && std::holds_alternative<double>(value);
    if (!open && !list_of_one && initial.index() != value.index()) {
      throw Error("{}: attribute '{}' is {}; expected {}", op.name, name, kind(value), kind(initial));
    }
    all.set(name, value);
  }
  return all;
}

}  // namespace assay
