#include "assay/compare/kernels/ordinals.h"

#include <bit>
#include <cstring>

namespace assay {
namespace {

// Sign and magnitude as a signed number.
template <class Code>
std::int64_t ordinal(Code code) {
  constexpr int sign_bit = 8 * sizeof(Code) - 1;
  const auto magnitude = static_cast<std::int64_t>(code & static_cast<Code>(~(Code{1} << sign_bit)));
  return (code >> sign_bit) != 0 ? -magnitude : magnitude;
}

template <class Code>
void from_codes(std::span<const std::byte> bytes, std::size_t count, int padding, std::int64_t* out) {
  for (std::size_t i = 0; i < count; ++i) {
    Code code;
    std::memcpy(&code, bytes.data() + i * sizeof code, sizeof code);
    out[i] = ordinal(code) >> padding;
  }
}

template <class Int>
Integer integer(std::span<const std::byte> bytes, std::size_t i) {
  Int value;
  std::memcpy(&value, bytes.data() + i * sizeof value, sizeof value);
  return value;
}

// A format in the high bits of float32: its neighbours are 2^padding float32 numbers apart.
int padding_of(DType d) {
  return d == DType::tfloat32 || d == DType::hfloat32 ? 23 - format_of(d).fraction_bits : 0;
}

bool fits_float32(DType d) {
  return is_float(d) && d != DType::float64;
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

void ordinals(DType unit, DType own, std::span<const std::byte> bytes, std::span<const double> values,
              std::int64_t* out) {
  const std::size_t count = values.size();
  if (own == unit) {
    switch (size_of(unit)) {
      case 8:
        return from_codes<std::uint64_t>(bytes, count, 0, out);
      case 4:
        return from_codes<std::uint32_t>(bytes, count, padding_of(unit), out);
      case 2:
        return from_codes<std::uint16_t>(bytes, count, 0, out);
      default:
        return from_codes<std::uint8_t>(bytes, count, 0, out);
    }
  }
  if (unit == DType::float32) {
    for (std::size_t i = 0; i < count; ++i)
      out[i] = ordinal(std::bit_cast<std::uint32_t>(static_cast<float>(values[i])));
  } else if (unit == DType::bfloat16 && fits_float32(own)) {
    // bfloat16 is the high half of float32: round to nearest even in the integer domain. Finite values only.
    for (std::size_t i = 0; i < count; ++i) {
      const auto code = std::bit_cast<std::uint32_t>(static_cast<float>(values[i]));
      out[i] = ordinal(static_cast<std::uint16_t>((code + 0x7fffu + ((code >> 16) & 1u)) >> 16));
    }
  } else {
    const int magnitude_bits = format_of(unit).exponent_bits + format_of(unit).fraction_bits;
    for (std::size_t i = 0; i < count; ++i) {
      const std::uint64_t code = encode(unit, values[i]) >> padding_of(unit);
      const auto magnitude = static_cast<std::int64_t>(code & ((std::uint64_t{1} << magnitude_bits) - 1));
      out[i] = (code >> magnitude_bits) != 0 ? -magnitude : magnitude;
    }
  }
}

}  // namespace assay
