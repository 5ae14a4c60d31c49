#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace assay::config {

/// What a configuration file states for a key.
struct Value {
  enum class Kind : std::uint8_t {
    null,
    flag,
    number,
    text,
    open  ///< decided elsewhere: DeepSpeed's "auto", a variable that the script does not set
  };
  Kind kind = Kind::null;
  double number = 0;      ///< of a flag, too: 0 or 1
  std::string text = {};  ///< for the report; of a text itself

  static Value of(bool);
  static Value of(double);
  static Value of(std::string);
  static Value open(std::string);
  bool is_null() const { return kind == Kind::null; }
};

/// Of one kind and equal; numbers as float64, whole ones digit by digit. NaN and what is open equal nothing.
bool same(const Value&, const Value&);

/// What a word means that has no quotes: None, null and ~ are nothing, true and False flags, 1.e-5 is a
/// number.
Value parse_value(std::string_view word);

/// Whether it says yes or no: true, "ON", "enabled", 1, ..; anything else stays as it is.
Value as_flag(const Value&);
/// The project's name of a dtype: "bfloat16" of torch.bfloat16, bf16, BF16; anything else stays as it is.
Value as_dtype(const Value&);

std::string lower(std::string_view);

}  // namespace assay::config
