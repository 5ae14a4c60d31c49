#pragma once

#include <cmath>
#include <cstdint>
#include <nlohmann/json.hpp>

namespace assay {

/// A number as reports have it; JSON has no NaN and no infinities: "nan", "inf", "-inf".
inline nlohmann::ordered_json json_number(double v) {
  if (std::isnan(v)) return "nan";
  if (std::isinf(v)) return v > 0 ? "inf" : "-inf";
  return v;
}
inline nlohmann::ordered_json json_number(std::int64_t v) {
  return v;
}

}  // namespace assay
