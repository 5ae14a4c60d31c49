#include "assay/config/value.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <utility>

namespace assay::config {
namespace {

bool is_one_of(std::string_view word, std::initializer_list<std::string_view> words) {
  return std::ranges::find(words, word) != words.end();
}

// float64 takes whole numbers up to 2^53 apart; seeds are larger.
constexpr double exact_integers = 9007199254740992.0;

}  // namespace

std::string lower(std::string_view word) {
  std::string result(word);
  std::ranges::transform(result, result.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return result;
}

Value Value::of(bool flag) {
  return {Kind::flag, flag ? 1.0 : 0.0, flag ? "true" : "false"};
}
Value Value::of(double number) {
  const bool whole = number >= -exact_integers && number <= exact_integers &&
                     static_cast<double>(static_cast<std::int64_t>(number)) == number;
  return {Kind::number, number,
          whole ? std::to_string(static_cast<std::int64_t>(number)) : fmt::format("{}", number)};
}
Value Value::of(std::string text) {
  return {Kind::text, 0, std::move(text)};
}
Value Value::open(std::string text) {
  return {Kind::open, 0, std::move(text)};
}

bool same(const Value& a, const Value& b) {
  if (a.kind != b.kind || a.kind == Value::Kind::open) return false;
  switch (a.kind) {
    case Value::Kind::number:
      return a.number == b.number && (std::abs(a.number) < exact_integers || a.text == b.text);
    case Value::Kind::flag:
      return a.number == b.number;
    default:
      return a.text == b.text;
  }
}

Value parse_value(std::string_view word) {
  // "none" is a choice of some options; Python's nothing is None.
  if (is_one_of(word, {"None", "null", "Null", "NULL", "~", ""})) return {};
  const std::string small = lower(word);
  if (small == "true" || small == "false") return Value::of(small == "true");
  double number = 0;
  const std::string_view digits = word.starts_with('+') ? word.substr(1) : word;
  const auto [end, problem] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  if (problem != std::errc() || end != digits.data() + digits.size()) return Value::of(std::string(word));
  Value value = Value::of(number);
  if (!(std::abs(number) < exact_integers)) value.text = digits;
  return value;
}

Value as_flag(const Value& value) {
  if (value.kind == Value::Kind::number && (value.number == 0 || value.number == 1))
    return Value::of(value.number == 1);
  if (value.kind != Value::Kind::text) return value;
  const std::string word = lower(value.text);
  if (is_one_of(word, {"on", "yes", "enabled", "true", "1"})) return Value::of(true);
  if (is_one_of(word, {"off", "no", "disabled", "false", "0"})) return Value::of(false);
  return value;
}

Value as_dtype(const Value& value) {
  if (value.kind != Value::Kind::text) return value;
  std::string word = lower(value.text);
  for (const std::string_view prefix : {"torch.", "mindspore.", "ms.", "jnp."}) {
    if (word.starts_with(prefix)) word.erase(0, prefix.size());
  }
  if (is_one_of(word, {"bf16", "bfloat16"})) return Value::of(std::string("bfloat16"));
  if (is_one_of(word, {"fp16", "float16", "half"})) return Value::of(std::string("float16"));
  if (is_one_of(word, {"fp32", "float32", "float"})) return Value::of(std::string("float32"));
  if (is_one_of(word, {"fp64", "float64", "double"})) return Value::of(std::string("float64"));
  return Value::of(word);
}

}  // namespace assay::config
