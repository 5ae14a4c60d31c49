#include "assay/dumps/io/json.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "assay/golden/error.h"

namespace assay {
namespace {

// nlohmann's parser keeps its own stack on the heap, so depth costs it nothing; the cap protects the
// destructor of our value, which recurses.
constexpr std::size_t max_depth = 64;
// A file of a hundred thousand recorded calls holds two million; a list of zeros takes 24 times its text.
constexpr std::size_t max_values = 20'000'000;

// What stands for Python's numbers while nlohmann's parser, which knows none of them, reads the text: strings
// of a control character that no name holds, none longer than the token it replaces.
struct StandIn {
  std::string_view token, text;
  double value;
};
constexpr StandIn stand_ins[] = {{"NaN", "\"\x7f\"", std::numeric_limits<double>::quiet_NaN()},
                                 {"Infinity", "\"\x7f+\"", infinity},
                                 {"-Infinity", "\"\x7f-\"", -infinity}};

const StandIn* stand_in(std::string_view string) {
  for (const StandIn& s : stand_ins) {
    if (s.text.substr(1, s.text.size() - 2) == string) return &s;
  }
  return nullptr;
}

class Builder {
 public:
  Builder(std::string_view where, JsonNumbers numbers) : where_(where), numbers_(numbers) {}

  bool null() { return put(Json{}); }
  bool boolean(bool value) { return put(Json{value}); }
  bool number_integer(std::int64_t value) { return put(Json{value}); }
  bool number_unsigned(std::uint64_t value) {
    if (value <= std::uint64_t{std::numeric_limits<std::int64_t>::max()}) {
      return put(Json{static_cast<std::int64_t>(value)});
    }
    return put(Json{static_cast<double>(value)});
  }
  bool number_float(double value, const std::string&) { return put(Json{value}); }
  bool string(std::string& value) {
    if (numbers_ == JsonNumbers::python) {
      if (const StandIn* number = stand_in(value)) return put(Json{number->value});
    }
    return put(Json{std::move(value)});
  }
  bool binary(std::vector<std::uint8_t>&) { return false; }
  bool start_object(std::size_t) { return open(Json{Json::Object{}}); }
  bool start_array(std::size_t) { return open(Json{Json::Array{}}); }
  bool end_object() {
    check_keys(std::get<Json::Object>(levels_.back().value_));
    return close();
  }
  bool end_array() { return close(); }
  bool key(std::string& name) {
    if (numbers_ == JsonNumbers::python && stand_in(name) != nullptr)
      throw Error("{}: not valid JSON: a number stands for a key", where_);
    std::get<Json::Object>(levels_.back().value_).push_back({std::move(name), Json{}});
    return true;
  }
  bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception& problem) {
    throw Error("{}: not valid JSON at byte {} ({})", where_, position, problem.what());
  }

  Json result;

 private:
  void check_keys(const Json::Object& members) {
    keys_.clear();
    for (const auto& member : members) keys_.push_back(member.first);
    std::ranges::sort(keys_);
    const auto twice = std::ranges::adjacent_find(keys_);
    if (twice != keys_.end()) throw Error("{}: the JSON key '{}' stands twice in one object", where_, *twice);
  }

  bool put(Json value) {
    if (++values_ > max_values) throw Error("{}: JSON of more than {} values", where_, max_values);
    if (levels_.empty()) {
      result = std::move(value);
    } else if (auto* items = std::get_if<Json::Array>(&levels_.back().value_)) {
      items->push_back(std::move(value));
    } else {
      std::get<Json::Object>(levels_.back().value_).back().second = std::move(value);
    }
    return true;
  }
  bool open(Json value) {
    if (levels_.size() == max_depth) throw Error("{}: JSON nested deeper than {}", where_, max_depth);
    levels_.push_back(std::move(value));
    return true;
  }
  bool close() {
    Json value = std::move(levels_.back());
    levels_.pop_back();
    return put(std::move(value));
  }

  std::string_view where_;
  JsonNumbers numbers_;
  std::vector<Json> levels_;
  std::vector<std::string_view> keys_;  // of the object that ends
  std::size_t values_ = 0;
};

// Only tokens outside strings are touched. The text keeps its length, so byte positions in messages stay
// true.
std::string without_python_numbers(std::string_view text) {
  std::string result(text);
  bool in_string = false;
  for (std::size_t i = 0; i < result.size(); ++i) {
    const char c = result[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == 'N' || c == 'I' || c == '-') {
      for (const StandIn& s : stand_ins) {
        if (std::string_view(result).substr(i, s.token.size()) != s.token) continue;
        std::fill_n(result.begin() + static_cast<std::ptrdiff_t>(i), s.token.size(), ' ');
        std::copy(s.text.begin(), s.text.end(), result.begin() + static_cast<std::ptrdiff_t>(i));
        i += s.token.size() - 1;
        break;
      }
    }
  }
  return result;
}

// A serializer costs more than most names are long.
bool is_plain(char c) {
  return c >= ' ' && c < '\x7f' && c != '"' && c != '\\';
}

void append_quoted(std::string& to, const std::string& text) {
  if (std::ranges::all_of(text, is_plain)) {
    to.append(1, '"').append(text).append(1, '"');
    return;
  }
  try {
    to += nlohmann::json(text).dump();
  } catch (const nlohmann::json::exception&) {
    throw Error("a name is not UTF-8 text and cannot be written as JSON; rename it");
  }
}

// Takes the place of the comma behind the last item.
void close_with(std::string& text, char bracket) {
  if (text.back() == ',') text.pop_back();
  text += bracket;
}

}  // namespace

std::string_view Json::kind() const {
  constexpr std::string_view kinds[] = {"null",     "a boolean", "an integer", "a number",
                                        "a string", "an array",  "an object"};
  return kinds[value_.index()];
}

std::string Json::text() const {
  std::string text;
  append_to(text);
  return text;
}

void Json::append_to(std::string& text) const {
  if (const auto* items = std::get_if<Array>(&value_)) {
    text += '[';
    for (const Json& item : *items) {
      item.append_to(text);
      text += ',';
    }
    close_with(text, ']');
  } else if (const auto* members = std::get_if<Object>(&value_)) {
    text += '{';
    for (const auto& [key, value] : *members) {
      append_quoted(text, key);
      text += ':';
      value.append_to(text);
      text += ',';
    }
    close_with(text, '}');
  } else if (const auto* flag = std::get_if<bool>(&value_)) {
    text += *flag ? "true" : "false";
  } else if (const auto* whole = std::get_if<std::int64_t>(&value_)) {
    text += std::to_string(*whole);
  } else if (const auto* number = std::get_if<double>(&value_)) {
    text += nlohmann::json(*number).dump();
  } else if (is_string()) {
    append_quoted(text, std::get<std::string>(value_));
  } else {
    text += "null";
  }
}

std::int64_t Json::integer(std::string_view where) const {
  if (const auto* value = std::get_if<std::int64_t>(&value_)) return *value;
  throw Error("{} is {}, expected an integer", where, kind());
}

const std::string& Json::string(std::string_view where) const {
  if (const auto* value = std::get_if<std::string>(&value_)) return *value;
  throw Error("{} is {}, expected a string", where, kind());
}

std::optional<double> Json::number() const {
  if (const auto* value = std::get_if<bool>(&value_)) return *value ? 1 : 0;
  if (const auto* value = std::get_if<std::int64_t>(&value_)) return static_cast<double>(*value);
  if (const auto* value = std::get_if<double>(&value_)) return *value;
  return std::nullopt;
}

const Json::Array& Json::array(std::string_view where) const {
  if (const auto* value = std::get_if<Array>(&value_)) return *value;
  throw Error("{} is {}, expected an array", where, kind());
}

const Json::Object& Json::object(std::string_view where) const {
  if (const auto* value = std::get_if<Object>(&value_)) return *value;
  throw Error("{} is {}, expected an object", where, kind());
}

Shape Json::shape(std::string_view where) const {
  Shape shape;
  for (const Json& extent : array(where)) shape.push_back(extent.integer(where));
  if (shape.size() > 64) throw Error("{} has {} dimensions, expected at most 64", where, shape.size());
  try {
    element_count(shape);
  } catch (const Error& problem) {
    throw Error("{}: {}", where, problem.what());
  }
  return shape;
}

const Json* Json::find(std::string_view key) const {
  const auto* members = std::get_if<Object>(&value_);
  if (members == nullptr) return nullptr;
  for (const Member& member : *members) {
    if (member.first == key) return &member.second;
  }
  return nullptr;
}

const Json& Json::at(std::string_view key, std::string_view where) const {
  if (const Json* value = find(key)) return *value;
  throw Error("{} is {} without the key '{}'", where, kind(), key);
}

Json parse_json(std::string_view text, std::string_view where, JsonNumbers numbers) {
  Builder builder(where, numbers);
  if (numbers == JsonNumbers::strict) {
    nlohmann::json::sax_parse(text, &builder);
  } else {
    nlohmann::json::sax_parse(without_python_numbers(text), &builder);
  }
  return std::move(builder.result);
}

}  // namespace assay
