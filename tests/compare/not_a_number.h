#pragma once

#include <limits>

namespace assay {

inline constexpr double nan = std::numeric_limits<double>::quiet_NaN();

}  // namespace assay
