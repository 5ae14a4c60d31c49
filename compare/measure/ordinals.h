#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "assay/golden/dtype.h"

namespace assay {

/// The position of a value on the line of all values of `unit`, so that neighbours differ by one; both zeros
/// are 0. It is rounded to `unit` first. Floating dtypes and finite values only.
std::int64_t ordinal(DType unit, double value);

/// Holds every integer of every integer dtype, and their differences.
using Integer = __int128;
/// Element `i` of an array of an integer dtype.
Integer integer_at(DType, std::span<const std::byte> bytes, std::size_t i);

/// actual - reference of each pair of integers, rounded once, and its size, no more than 2^64-1. Returns the
/// largest size.
std::uint64_t subtract_integers(DType actual, DType reference, std::span<const std::byte> actual_bytes,
                                std::span<const std::byte> reference_bytes, double* difference,
                                std::uint64_t* distance);

}  // namespace assay
