#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "assay/golden/tensor.h"

namespace assay {

/// A parsed JSON value; objects keep the order of their keys. Every accessor takes `where` (a file, line or
/// tensor). It begins the message of the Error for a value of another kind.
class Json {
 public:
  using Array = std::vector<Json>;
  struct Member;
  using Object = std::vector<Member>;

  bool is_null() const { return value_.index() == 0; }
  bool is_string() const { return std::holds_alternative<std::string>(value_); }
  bool is_array() const { return std::holds_alternative<Array>(value_); }
  bool is_object() const { return std::holds_alternative<Object>(value_); }

  std::int64_t integer(std::string_view where) const;
  const std::string& string(std::string_view where) const;
  /// An integer, a number or a boolean (as 0 and 1); nothing for any other kind.
  std::optional<double> number() const;
  const Array& array(std::string_view where) const;
  const Object& object(std::string_view where) const;
  /// An array of extents: none negative, product within int64.
  Shape shape(std::string_view where) const;

  /// The member `key`; nullptr if there is none.
  const Json* find(std::string_view key) const;
  /// The member `key`; its absence is an Error.
  const Json& at(std::string_view key, std::string_view where) const;

  /// The value as JSON text, without spaces.
  std::string text() const;
  void append_to(std::string& text) const;
  /// "a string", "an object", ..: for messages.
  std::string_view kind() const;

  std::variant<std::monostate, bool, std::int64_t, double, std::string, Array, Object> value_;
};

struct Json::Member {
  std::string first;  ///< the key
  Json second;        ///< its value
};

/// Python's json module writes bare NaN, Infinity and -Infinity; msprobe's statistics are full of them.
enum class JsonNumbers : std::uint8_t { strict, python };

/// Throws Error ("<where>: ...") for malformed text, duplicate keys, nesting deeper than 64, more values than
/// any recorder writes (20 million) or trailing text. JsonNumbers::python reads bare NaN and Infinity as
/// numbers.
Json parse_json(std::string_view text, std::string_view where, JsonNumbers = JsonNumbers::strict);

}  // namespace assay
