#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "assay/dumps/io/json.h"
#include "assay/dumps/record/dump.h"

namespace assay {

/// The statistics in an object with some of the keys min, max, mean, l2, sum, abs_sum, nan, inf, rounding and
/// arithmetic; what is not finite is "nan", "inf" or "-inf". Nothing: it has none of them. Throws Error
/// ("<where>: ...") for values that no tensor of so many elements has.
std::optional<Statistics> statistics_in(const Json&, std::int64_t elements, std::string_view where);

}  // namespace assay
