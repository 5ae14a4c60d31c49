#include "assay/golden/dtype.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cctype>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>

#include "assay/golden/error.h"
#include "assay/golden/float_environment.h"

namespace assay {
namespace {

static_assert(std::endian::native == std::endian::little, "elements are stored and mapped little-endian");

struct Entry {
  DType dtype;
  std::string_view name;
  std::size_t size;
  FloatFormat format;  // zero for integers
};

constexpr Entry entries[] = {
    {DType::float64, "float64", 8, {11, 52, 1023, true}},
    {DType::float32, "float32", 4, {8, 23, 127, true}},
    {DType::tfloat32, "tfloat32", 4, {8, 10, 127, true}},
    {DType::hfloat32, "hfloat32", 4, {8, 11, 127, true}},
    {DType::float16, "float16", 2, {5, 10, 15, true}},
    {DType::bfloat16, "bfloat16", 2, {8, 7, 127, true}},
    {DType::float8_e4m3fn, "float8_e4m3fn", 1, {4, 3, 7, false}},
    {DType::float8_e5m2, "float8_e5m2", 1, {5, 2, 15, true}},
    {DType::float4_e2m1fn, "float4_e2m1fn", 1, {2, 1, 1, false, false}},
    {DType::int64, "int64", 8, {}},
    {DType::int32, "int32", 4, {}},
    {DType::int16, "int16", 2, {}},
    {DType::int8, "int8", 1, {}},
    {DType::uint64, "uint64", 8, {}},
    {DType::uint32, "uint32", 4, {}},
    {DType::uint16, "uint16", 2, {}},
    {DType::uint8, "uint8", 1, {}},
    {DType::boolean, "bool", 1, {}},
};

const Entry& entry(DType d) {
  return entries[static_cast<std::size_t>(d)];
}

// Spellings beyond the torch name, lower case, without "torch." or "mindspore.": numpy, safetensors,
// MindSpore, XLA.
struct Alias {
  std::string_view name;
  DType dtype;
};
constexpr Alias aliases[] = {
    {"f64", DType::float64},
    {"fp64", DType::float64},
    {"double", DType::float64},
    {"f32", DType::float32},
    {"fp32", DType::float32},
    {"float", DType::float32},
    {"f16", DType::float16},
    {"fp16", DType::float16},
    {"half", DType::float16},
    {"bf16", DType::bfloat16},
    {"tf32", DType::tfloat32},
    {"hf32", DType::hfloat32},
    {"f8_e4m3", DType::float8_e4m3fn},
    {"f8e4m3fn", DType::float8_e4m3fn},
    {"float8e4m3fn", DType::float8_e4m3fn},
    {"f8_e5m2", DType::float8_e5m2},
    {"f8e5m2", DType::float8_e5m2},
    {"float8e5m2", DType::float8_e5m2},
    {"f4e2m1fn", DType::float4_e2m1fn},
    {"float4e2m1fn", DType::float4_e2m1fn},
    {"i64", DType::int64},
    {"s64", DType::int64},
    {"long", DType::int64},
    {"i32", DType::int32},
    {"s32", DType::int32},
    {"int", DType::int32},
    {"i16", DType::int16},
    {"s16", DType::int16},
    {"short", DType::int16},
    {"i8", DType::int8},
    {"s8", DType::int8},
    {"char", DType::int8},
    {"u64", DType::uint64},
    {"u32", DType::uint32},
    {"u16", DType::uint16},
    {"u8", DType::uint8},
    {"byte", DType::uint8},
    {"boolean", DType::boolean},
    {"bool_", DType::boolean},
    {"pred", DType::boolean},
};

std::uint64_t low_bits(int n) {
  return (std::uint64_t{1} << n) - 1;
}

constexpr int double_bias = 1023;

// A float64 without its last n bits, ties to even; a carry goes into the exponent.
double nearest_even(std::uint64_t bits, int n) {
  if (n > 0) bits += low_bits(n - 1) + (bits >> n & 1);
  return std::bit_cast<double>(bits & ~low_bits(n));
}

// The significand of a positive finite number, 53 bits or fewer: value = significand * 2^exponent.
struct Decomposed {
  std::uint64_t significand;
  int exponent;
};
Decomposed decompose(std::uint64_t bits) {
  const int biased = static_cast<int>((bits >> 52) & 0x7ff);
  const std::uint64_t fraction = bits & low_bits(52);
  if (biased == 0) return {fraction, -1074};
  return {fraction | (std::uint64_t{1} << 52), biased - 1075};
}

// significand / 2^shift, rounded to an integer.
std::uint64_t shift_right_rounded(std::uint64_t significand, int shift, Rounding rounding) {
  if (shift <= 0) return significand << -shift;
  if (shift > 54) return 0;  // below a quarter of the last place: no mode used here rounds it up
  const std::uint64_t kept = significand >> shift;
  if (rounding == Rounding::toward_zero) return kept;
  const std::uint64_t rest = significand & low_bits(shift);
  const std::uint64_t half = std::uint64_t{1} << (shift - 1);
  const bool up = rest > half || (rest == half && (rounding == Rounding::nearest_away || (kept & 1) != 0));
  return kept + (up ? 1 : 0);
}

std::uint64_t encode_nan(const FloatFormat& f, std::uint64_t bits) {
  if (!f.has_infinity) return low_bits(f.exponent_bits + f.fraction_bits);
  const std::uint64_t quiet = std::uint64_t{1} << (f.fraction_bits - 1);
  const std::uint64_t payload = (bits & low_bits(52)) >> (52 - f.fraction_bits);
  return (low_bits(f.exponent_bits) << f.fraction_bits) | payload | quiet;
}

std::uint64_t encode_magnitude(const FloatFormat& f, std::uint64_t bits, Rounding rounding,
                               Overflow overflow) {
  const std::uint64_t infinity = low_bits(f.exponent_bits) << f.fraction_bits;
  const std::uint64_t all_ones = infinity + low_bits(f.fraction_bits);
  const std::uint64_t largest = f.has_infinity ? infinity - 1 : f.has_nan ? all_ones - 1 : all_ones;
  const std::uint64_t beyond = overflow == Overflow::saturate ? largest
                               : f.has_infinity               ? infinity
                                                              : all_ones;
  constexpr std::uint64_t double_infinity = std::uint64_t{0x7ff} << 52;
  if (bits > double_infinity) return encode_nan(f, bits);
  if (bits == double_infinity) return beyond;
  if (bits == 0) return 0;
  const auto [significand, exponent] = decompose(bits);
  // Exponent of the last place after rounding: of a normal number, or the fixed one of the subnormals.
  const int leading = exponent + static_cast<int>(std::bit_width(significand)) - 1;
  const int last_place = std::max(leading, f.min_exponent()) - f.fraction_bits;
  const std::uint64_t rounded = shift_right_rounded(significand, last_place - exponent, rounding);
  // A carry into the next binade, or from subnormal to normal, is the integer sum that the encoding makes of
  // it.
  const std::uint64_t biased = static_cast<std::uint64_t>(last_place + f.fraction_bits - f.min_exponent());
  const std::uint64_t code = (biased << f.fraction_bits) + rounded;
  if (code <= largest) return code;
  return rounding == Rounding::toward_zero ? largest : beyond;
}

template <class Int>
std::uint64_t encode_integer(double value, Rounding rounding) {
  if (std::isnan(value)) return 0;
  const double whole = rounding == Rounding::toward_zero    ? std::trunc(value)
                       : rounding == Rounding::nearest_away ? std::round(value)
                                                            : std::nearbyint(value);
  using Limits = std::numeric_limits<Int>;
  // 2^digits is exact in float64 where max() is not.
  const double end = std::ldexp(1.0, Limits::digits);
  Int result;
  if (whole >= end) {
    result = Limits::max();
  } else if (whole < static_cast<double>(Limits::min())) {
    result = Limits::min();
  } else {
    result = static_cast<Int>(whole);
  }
  std::uint64_t code = 0;
  std::memcpy(&code, &result, sizeof result);
  return code;
}

template <class Stored>
void decode_all(std::span<const std::byte> bytes, std::span<double> values, auto&& convert) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    Stored stored;
    std::memcpy(&stored, bytes.data() + i * sizeof stored, sizeof stored);
    values[i] = convert(stored);
  }
}

template <class Code, DType dtype>
const std::array<double, std::size_t{1} << (8 * sizeof(Code))>& decode_table() {
  static const auto table = [] {
    std::array<double, std::size_t{1} << (8 * sizeof(Code))> t;
    for (std::size_t code = 0; code < t.size(); ++code) t[code] = decode(dtype, code);
    return t;
  }();
  return table;
}

template <class Code, DType dtype>
void decode_by_table(std::span<const std::byte> bytes, std::span<double> values) {
  const auto& table = decode_table<Code, dtype>();
  decode_all<Code>(bytes, values, [&](Code code) { return table[code]; });
}

}  // namespace

std::string_view name(DType d) {
  return entry(d).name;
}

std::optional<DType> parse_dtype(std::string_view text) {
  std::string lower;
  for (const char c : text) lower += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  for (const std::string_view prefix : {"torch.", "mindspore.", "numpy."}) {
    if (lower.starts_with(prefix)) lower.erase(0, prefix.size());
  }
  for (const Entry& e : entries) {
    if (e.name == lower) return e.dtype;
  }
  for (const Alias& a : aliases) {
    if (a.name == lower) return a.dtype;
  }
  return std::nullopt;
}

bool is_float(DType d) {
  return entry(d).format.exponent_bits != 0;
}
std::size_t size_of(DType d) {
  return entry(d).size;
}
int padding_bits(DType d) {
  return d == DType::tfloat32 || d == DType::hfloat32 ? 23 - entry(d).format.fraction_bits : 0;
}

const FloatFormat& format_of(DType d) {
  if (!is_float(d)) throw Error("{} has no floating-point format; expected a floating dtype", name(d));
  return entry(d).format;
}

// 2^e, of a float64's range. Errors are bounded element by element: std::ldexp would be a tenth of it.
static constexpr double power_of_two(int e) {
  constexpr int bias = 1023, fraction_bits = 52;
  const bool is_normal = e > -bias;
  const auto one = std::uint64_t{1};
  return std::bit_cast<double>(is_normal ? static_cast<std::uint64_t>(e + bias) << fraction_bits
                                         : one << (e + bias - 1 + fraction_bits));
}

double unit_roundoff(DType d) {
  return power_of_two(-format_of(d).precision());
}

double max_finite(DType d) {
  const FloatFormat& f = format_of(d);
  // All ones, or all ones but the last where that code is NaN.
  const double significand = 2 - std::ldexp(f.has_infinity || !f.has_nan ? 1.0 : 2.0, -f.fraction_bits);
  return std::ldexp(significand, f.max_exponent());
}

double min_subnormal(DType d) {
  const FloatFormat& f = format_of(d);
  return power_of_two(f.min_exponent() - f.fraction_bits);
}

double decode(DType d, std::uint64_t code) {
  switch (d) {
    case DType::float64:
      return std::bit_cast<double>(code);
    case DType::float32:
    case DType::tfloat32:
    case DType::hfloat32:
      return std::bit_cast<float>(static_cast<std::uint32_t>(code));
    case DType::int64:
      return static_cast<double>(static_cast<std::int64_t>(code));
    case DType::int32:
      return static_cast<std::int32_t>(code);
    case DType::int16:
      return static_cast<std::int16_t>(code);
    case DType::int8:
      return static_cast<std::int8_t>(code);
    case DType::uint64:
      return static_cast<double>(code);
    case DType::uint32:
      return static_cast<std::uint32_t>(code);
    case DType::uint16:
      return static_cast<std::uint16_t>(code);
    case DType::uint8:
      return static_cast<std::uint8_t>(code);
    case DType::boolean:
      return (code & 0xff) != 0 ? 1 : 0;
    default:
      break;
  }
  const FloatFormat& f = entry(d).format;
  const int magnitude_bits = f.exponent_bits + f.fraction_bits;
  const std::uint64_t magnitude = code & low_bits(magnitude_bits);
  const std::uint64_t fraction = code & low_bits(f.fraction_bits);
  const int biased = static_cast<int>(magnitude >> f.fraction_bits);
  const bool negative = ((code >> magnitude_bits) & 1) != 0;
  double value;
  if (f.has_infinity && biased == (1 << f.exponent_bits) - 1) {
    // Payload and sign survive: the bits are built, since arithmetic on a NaN may drop them.
    const std::uint64_t bits = (std::uint64_t{0x7ff} << 52) | (fraction << (52 - f.fraction_bits));
    value = std::bit_cast<double>(bits);
  } else if (!f.has_infinity && f.has_nan && magnitude == low_bits(magnitude_bits)) {
    value = std::numeric_limits<double>::quiet_NaN();
  } else if (biased == 0) {
    value = std::ldexp(static_cast<double>(fraction), f.min_exponent() - f.fraction_bits);
  } else {
    // A normal number of any format is one of float64.
    value = std::bit_cast<double>(static_cast<std::uint64_t>(biased - f.bias + double_bias) << 52 |
                                  fraction << (52 - f.fraction_bits));
  }
  return negative ? std::bit_cast<double>(std::bit_cast<std::uint64_t>(value) | (std::uint64_t{1} << 63))
                  : value;
}

std::uint64_t encode(DType d, double value, Rounding rounding, Overflow overflow) {
  switch (d) {
    case DType::int64:
      return encode_integer<std::int64_t>(value, rounding);
    case DType::int32:
      return encode_integer<std::int32_t>(value, rounding);
    case DType::int16:
      return encode_integer<std::int16_t>(value, rounding);
    case DType::int8:
      return encode_integer<std::int8_t>(value, rounding);
    case DType::uint64:
      return encode_integer<std::uint64_t>(value, rounding);
    case DType::uint32:
      return encode_integer<std::uint32_t>(value, rounding);
    case DType::uint16:
      return encode_integer<std::uint16_t>(value, rounding);
    case DType::uint8:
      return encode_integer<std::uint8_t>(value, rounding);
    case DType::boolean:
      return value != 0 ? 1 : 0;
    default:
      break;
  }
  const FloatFormat& f = entry(d).format;
  const std::uint64_t bits = std::bit_cast<std::uint64_t>(value);
  const bool is_lost = std::isnan(value) && !f.has_nan;
  const std::uint64_t sign = (bits >> 63) ^ (is_lost ? 1 : 0);
  const std::uint64_t magnitude = is_lost ? 0 : encode_magnitude(f, bits & low_bits(63), rounding, overflow);
  return ((sign << (f.exponent_bits + f.fraction_bits)) | magnitude) << padding_bits(d);
}

double round_to(DType d, double value, Rounding rounding, Overflow overflow) {
  if (is_float(d) && rounding == Rounding::nearest_even) {
    const FloatFormat& f = entry(d).format;
    const std::uint64_t bits = std::bit_cast<std::uint64_t>(value);
    const int biased = static_cast<int>(bits >> 52 & 0x7ff) - double_bias + f.bias;
    // Neither subnormal nor at the end of the range: the last place is where it is in float64.
    if (biased >= 1 && biased < (1 << f.exponent_bits) - 2) return nearest_even(bits, 52 - f.fraction_bits);
  }
  return decode(d, encode(d, value, rounding, overflow));
}

void decode(DType d, std::span<const std::byte> bytes, std::span<double> values) {
  if (bytes.size() != values.size() * size_of(d)) {
    throw Error("{} bytes of {} cannot fill {} values; expected {} bytes", bytes.size(), name(d),
                values.size(), values.size() * size_of(d));
  }
  const auto plain = [](auto stored) { return static_cast<double>(stored); };
  switch (d) {
    case DType::float64:
      if (!bytes.empty()) std::memcpy(values.data(), bytes.data(), bytes.size());
      return;
    case DType::float32:
    case DType::tfloat32:
    case DType::hfloat32:
      return decode_all<float>(bytes, values, plain);
    case DType::float16:
      return decode_by_table<std::uint16_t, DType::float16>(bytes, values);
    case DType::bfloat16:
      return decode_all<std::uint16_t>(bytes, values, [](std::uint16_t code) {
        return static_cast<double>(std::bit_cast<float>(static_cast<std::uint32_t>(code) << 16));
      });
    case DType::float8_e4m3fn:
      return decode_by_table<std::uint8_t, DType::float8_e4m3fn>(bytes, values);
    case DType::float8_e5m2:
      return decode_by_table<std::uint8_t, DType::float8_e5m2>(bytes, values);
    case DType::float4_e2m1fn:
      return decode_by_table<std::uint8_t, DType::float4_e2m1fn>(bytes, values);
    case DType::int64:
      return decode_all<std::int64_t>(bytes, values, plain);
    case DType::int32:
      return decode_all<std::int32_t>(bytes, values, plain);
    case DType::int16:
      return decode_all<std::int16_t>(bytes, values, plain);
    case DType::int8:
      return decode_all<std::int8_t>(bytes, values, plain);
    case DType::uint64:
      return decode_all<std::uint64_t>(bytes, values, plain);
    case DType::uint32:
      return decode_all<std::uint32_t>(bytes, values, plain);
    case DType::uint16:
      return decode_all<std::uint16_t>(bytes, values, plain);
    case DType::uint8:
      return decode_all<std::uint8_t>(bytes, values, plain);
    case DType::boolean:
      return decode_all<std::uint8_t>(bytes, values, [](std::uint8_t b) { return b != 0 ? 1.0 : 0.0; });
  }
}

void encode(DType d, std::span<const double> values, std::span<std::byte> bytes) {
  const std::size_t size = size_of(d);
  if (bytes.size() != values.size() * size) {
    throw Error("{} values of {} need {} bytes; got room for {}", values.size(), name(d),
                values.size() * size, bytes.size());
  }
  const auto store = [&](auto convert) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      const auto code = convert(values[i]);
      std::memcpy(bytes.data() + i * size, &code, size);
    }
  };
  if (d == DType::float64) return store([](double v) { return v; });
  if (d != DType::float32) return store([d](double v) { return encode(d, v); });
  // The hardware's conversion keeps a NaN's sign and leading bits, too.
  const DefaultFloatEnvironment environment;
  store([](double v) { return static_cast<float>(v); });
}

}  // namespace assay
