#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string_view>

namespace assay {

inline constexpr double infinity = std::numeric_limits<double>::infinity();

/// Element types, by PyTorch's names. tfloat32 (NVIDIA: 8 exponent, 10 fraction bits) and hfloat32 (Ascend: 8
/// and 11) are stored as float32 whose low fraction bits are zero, float4_e2m1fn in the low bits of a byte,
/// as ml_dtypes has it.
enum class DType : std::uint8_t {
  float64,
  float32,
  tfloat32,
  hfloat32,
  float16,
  bfloat16,
  float8_e4m3fn,
  float8_e5m2,
  float4_e2m1fn,
  int64,
  int32,
  int16,
  int8,
  uint64,
  uint32,
  uint16,
  uint8,
  boolean,
};
inline constexpr DType all_dtypes[] = {
    DType::float64,  DType::float32,       DType::tfloat32,    DType::hfloat32,      DType::float16,
    DType::bfloat16, DType::float8_e4m3fn, DType::float8_e5m2, DType::float4_e2m1fn, DType::int64,
    DType::int32,    DType::int16,         DType::int8,        DType::uint64,        DType::uint32,
    DType::uint16,   DType::uint8,         DType::boolean};

/// A binary floating-point format. Sources: IEEE 754-2019 (float64, float32, float16), arXiv:1905.12322
/// (bfloat16), OCP OFP8 rev. 1.0 (float8_*), OCP MX 1.0 (float4_e2m1fn), NVIDIA PTX ISA (tfloat32), Ascend
/// CANN documentation (hfloat32).
struct FloatFormat {
  int exponent_bits;
  int fraction_bits;  ///< without the hidden bit
  int bias;
  bool has_infinity;    ///< false: the largest exponent holds numbers, NaN is all ones (float8_e4m3fn)
  bool has_nan = true;  ///< false: all ones is the largest number (float4_e2m1fn)

  constexpr int min_exponent() const { return 1 - bias; }  ///< of the smallest normal number
  constexpr int max_exponent() const { return (1 << exponent_bits) - 1 - bias - (has_infinity ? 1 : 0); }
  constexpr int precision() const { return fraction_bits + 1; }  ///< significand bits with the hidden one
};

/// How to round to a narrower format. IEEE 754: roundTiesToEven, roundTiesToAway, roundTowardZero.
enum class Rounding : std::uint8_t { nearest_even, nearest_away, toward_zero };

/// What a value beyond the largest finite number becomes: infinity (NaN where there is none), or the largest
/// finite number (OCP OFP8's saturation mode; infinities saturate too, NaN never does).
enum class Overflow : std::uint8_t { ieee, saturate };

/// Lower-case torch name: "float32", "float8_e4m3fn", "bool".
std::string_view name(DType);
/// Any spelling in the field's use ("torch.bfloat16", "BF16", "fp32", "F8_E4M3", "BFloat16"); nothing if
/// unknown.
std::optional<DType> parse_dtype(std::string_view);

bool is_float(DType);
/// Bytes of one element as stored.
std::size_t size_of(DType);
/// Low bits of an element that are zero: tfloat32 and hfloat32 are the high bits of a float32.
int padding_bits(DType);
/// The format of a floating dtype. Throws Error for integers.
const FloatFormat& format_of(DType);
/// u = 2^-precision, half the distance from 1 to the next number. Higham 2002, sec. 2.1.
double unit_roundoff(DType);
/// The largest finite number and the smallest positive (subnormal) one.
double max_finite(DType);
double min_subnormal(DType);

/// The value of a stored element, exact but for 64-bit integers beyond 2^53 (rounded to nearest).
/// @param code the element's bits, zero-extended
double decode(DType, std::uint64_t code);
/// `value` rounded once to `dtype`. NaN stays NaN: sign and the leading payload bits are kept, and it is
/// quiet; without one it is a zero of the other sign (ml_dtypes). Integers: rounded, then clamped to the
/// type's range whatever `overflow`; NaN becomes 0.
std::uint64_t encode(DType, double value, Rounding = Rounding::nearest_even, Overflow = Overflow::ieee);
/// decode(encode(value)).
double round_to(DType, double value, Rounding = Rounding::nearest_even, Overflow = Overflow::ieee);

/// Elements of `dtype` (little-endian, any alignment) as float64. `bytes.size()` must be `values.size()`
/// elements.
void decode(DType, std::span<const std::byte> bytes, std::span<double> values);
/// The inverse: each value rounded to nearest even.
void encode(DType, std::span<const double> values, std::span<std::byte> bytes);

}  // namespace assay
