#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "assay/golden/dtype.h"

namespace assay {

/// The position of each value on the line of all values of `unit`, so that neighbours differ by one; both
/// zeros are 0. A value of a finer dtype is rounded to `unit` first. Floating dtypes only.
/// @param bytes, values  the same elements of dtype `own`, as stored and decoded
void ordinals(DType unit, DType own, std::span<const std::byte> bytes, std::span<const double> values,
              std::int64_t* out);

/// Holds every integer of every integer dtype, and their differences.
using Integer = __int128;
/// Element `i` of an array of an integer dtype.
Integer integer_at(DType, std::span<const std::byte> bytes, std::size_t i);

}  // namespace assay
