#pragma once

#include <optional>

#include "assay/operators/engine/operator.h"

/// The rounding to another dtype that operators share.
namespace assay {

struct Conversion {
  std::optional<DType> to;  ///< nothing: the value stays as it is
  Rounding rounding = Rounding::nearest_even;
  Overflow overflow = Overflow::ieee;

  template <class T>
  T operator()(const T& x) const {
    if (!to) return x;
    return stepped(x, [this](double v) { return round_to(*to, v, rounding, overflow); });
  }
};

/// The attributes of an operator that converts.
inline constexpr Attribute to_attribute = {"to", "null", "floating dtype of y; null: no rounding"};
inline constexpr Attribute rounding_attribute = {"rounding", "\"nearest_even\"",
                                                 "nearest_even, nearest_away or toward_zero"};
inline constexpr Attribute saturate_attribute = {
    "saturate", "false", "what overflows becomes the largest finite number, not infinity or NaN"};

/// @param op  who asks, for the message
/// @throws Error  for an unknown dtype or rounding
Conversion conversion_of(const Attributes&, std::string_view op);
/// The dtype that the attribute names. Throws Error for an unknown one.
DType dtype_attribute(const Attributes&, std::string_view attribute, std::string_view op);

}  // namespace assay
