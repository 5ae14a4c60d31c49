#include "assay/compare/measure/ordinals.h"

#include <algorithm>
#include <cstring>
#include <limits>

namespace assay {
namespace {

template <class Int>
Integer integer(std::span<const std::byte> bytes, std::size_t i) {
  Int value;
  std::memcpy(&value, bytes.data() + i * sizeof value, sizeof value);
  return value;
}

// Of one dtype of 64 bits, whose distances fit into as many without a sign.
template <class Int>
std::uint64_t subtract_own(std::span<const std::byte> actual, std::span<const std::byte> reference,
                           double* difference, std::uint64_t* distance) {
  std::uint64_t largest = 0;
  for (std::size_t i = 0; i < actual.size() / sizeof(Int); ++i) {
    Int a, r;
    std::memcpy(&a, actual.data() + i * sizeof a, sizeof a);
    std::memcpy(&r, reference.data() + i * sizeof r, sizeof r);
    const auto left = static_cast<std::uint64_t>(a), right = static_cast<std::uint64_t>(r);
    distance[i] = a > r ? left - right : right - left;
    const auto size = static_cast<double>(distance[i]);
    difference[i] = a > r ? size : -size;
    largest = std::max(largest, distance[i]);
  }
  return largest;
}

}  // namespace

Integer integer_at(DType d, std::span<const std::byte> bytes, std::size_t i) {
  switch (d) {
    case DType::int64:
      return integer<std::int64_t>(bytes, i);
    case DType::int32:
      return integer<std::int32_t>(bytes, i);
    case DType::int16:
      return integer<std::int16_t>(bytes, i);
    case DType::int8:
      return integer<std::int8_t>(bytes, i);
    case DType::boolean:  // any other byte than 0 is true
      return bytes[i] != std::byte{0} ? 1 : 0;
    case DType::uint64:
      return integer<std::uint64_t>(bytes, i);
    case DType::uint32:
      return integer<std::uint32_t>(bytes, i);
    case DType::uint16:
      return integer<std::uint16_t>(bytes, i);
    default:
      return integer<std::uint8_t>(bytes, i);
  }
}

std::uint64_t subtract_integers(DType actual, DType reference, std::span<const std::byte> a,
                                std::span<const std::byte> r, double* difference, std::uint64_t* distance) {
  if (actual == reference && actual == DType::int64)
    return subtract_own<std::int64_t>(a, r, difference, distance);
  if (actual == reference && actual == DType::uint64)
    return subtract_own<std::uint64_t>(a, r, difference, distance);
  std::uint64_t largest = 0;
  for (std::size_t i = 0; i < a.size() / size_of(actual); ++i) {
    const Integer apart = integer_at(actual, a, i) - integer_at(reference, r, i);
    constexpr Integer most = std::numeric_limits<std::uint64_t>::max();
    difference[i] = static_cast<double>(apart);
    distance[i] = static_cast<std::uint64_t>(std::min(apart < 0 ? -apart : apart, most));
    largest = std::max(largest, distance[i]);
  }
  return largest;
}

std::int64_t ordinal(DType unit, double value) {
  const FloatFormat& format = format_of(unit);
  const int magnitude_bits = format.exponent_bits + format.fraction_bits;
  const std::uint64_t code = encode(unit, value) >> padding_bits(unit);
  const auto magnitude = static_cast<std::int64_t>(code & ((std::uint64_t{1} << magnitude_bits) - 1));
  return (code >> magnitude_bits) != 0 ? -magnitude : magnitude;
}

}  // namespace assay
