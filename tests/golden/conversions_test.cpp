#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cfenv>
#include <cmath>
#include <cstring>
#include <fstream>
#include <random>
#include <span>
#include <vector>

#include "assay/golden/dtype.h"

// encode() against an oracle that knows only the list of a format's numbers, and against PyTorch and
// ml_dtypes.
namespace assay::conversions_test {
namespace {

constexpr Rounding roundings[] = {Rounding::nearest_even, Rounding::nearest_away, Rounding::toward_zero};
constexpr DType narrow[] = {DType::float16, DType::bfloat16, DType::float8_e4m3fn, DType::float8_e5m2,
                            DType::float4_e2m1fn};

std::uint64_t sign_bit(DType d) {
  return std::uint64_t{1} << (d == DType::float4_e2m1fn ? 3 : 8 * size_of(d) - 1);
}

// The positive finite numbers in ascending order: the value of code i, written from the standards' tables.
std::vector<double> numbers(DType d) {
  struct {
    int fraction_bits, bias;
    std::uint64_t largest_code;
  } f{};
  if (d == DType::float16) f = {10, 15, 0x7bff};
  if (d == DType::bfloat16) f = {7, 127, 0x7f7f};
  if (d == DType::float8_e4m3fn) f = {3, 7, 0x7e};
  if (d == DType::float8_e5m2) f = {2, 15, 0x7b};
  if (d == DType::float4_e2m1fn) f = {1, 1, 0x7};
  std::vector<double> values;
  for (std::uint64_t code = 0; code <= f.largest_code; ++code) {
    const auto exponent = static_cast<int>(code >> f.fraction_bits);
    const double fraction = static_cast<double>(code % (1u << f.fraction_bits)) / (1 << f.fraction_bits);
    values.push_back(exponent == 0 ? fraction * std::pow(2., 1 - f.bias)
                                   : (1 + fraction) * std::pow(2., exponent - f.bias));
  }
  return values;
}

// The code of a positive value: the nearest number of the list, which goes on as if it had one more at its
// end.
std::uint64_t oracle(DType d, const std::vector<double>& list, double value, Rounding rounding,
                     Overflow overflow) {
  const std::size_t last = list.size() - 1;
  const double next = list[last] + (list[last] - list[last - 1]);
  std::size_t low = static_cast<std::size_t>(std::ranges::upper_bound(list, value) - list.begin()) - 1;
  const double above = low == last ? next : list[low + 1];
  const double middle = (list[low] + above) / 2;  // exact: one bit more than the format has
  bool up = rounding != Rounding::toward_zero && value > middle;
  if (value == middle)
    up = rounding == Rounding::nearest_away || (rounding == Rounding::nearest_even && low % 2 == 1);
  if (value >= next) up = rounding != Rounding::toward_zero || value == infinity;
  if (low + (up ? 1 : 0) <= last) return low + (up ? 1 : 0);
  if (overflow == Overflow::saturate || d == DType::float4_e2m1fn) return last;
  return d == DType::float8_e4m3fn ? 0x7f : last + 1;
}

TEST(Conversions, EveryCodeOfTheNarrowFormatsRoundTrips) {
  for (const DType d : narrow) {
    const std::vector<double> list = numbers(d);
    EXPECT_EQ(list.back(), max_finite(d)) << name(d);
    EXPECT_EQ(list[1], min_subnormal(d)) << name(d);
    for (std::uint64_t code = 0; code < 2 * sign_bit(d); ++code) {
      const std::uint64_t magnitude = code & (sign_bit(d) - 1);
      const double value = decode(d, code);
      EXPECT_EQ(std::signbit(value), code >= sign_bit(d)) << name(d) << " " << code;
      if (magnitude < list.size()) {
        ASSERT_EQ(std::abs(value), list[magnitude]) << name(d) << " " << code;
        ASSERT_EQ(encode(d, value), code) << name(d);
      } else if (magnitude == list.size() && d != DType::float8_e4m3fn) {
        ASSERT_EQ(std::abs(value), infinity) << name(d) << " " << code;
        ASSERT_EQ(encode(d, value), code) << name(d);
      } else {
        ASSERT_TRUE(std::isnan(value)) << name(d) << " " << code;
        // A NaN stays itself but for becoming quiet.
        const std::uint64_t quiet =
            d == DType::float8_e4m3fn ? 0 : std::uint64_t{1} << (format_of(d).fraction_bits - 1);
        ASSERT_EQ(encode(d, value), code | quiet) << name(d);
      }
    }
  }
}

TEST(Conversions, EveryMidpointAndItsNeighboursRoundAsTheOracle) {
  for (const DType d : narrow) {
    const std::vector<double> list = numbers(d);
    const double ulp = list.back() - list[list.size() - 2];
    for (std::size_t i = 0; i < list.size(); ++i) {
      const double above = i + 1 < list.size() ? list[i + 1] : list[i] + ulp;
      const double middle = (list[i] + above) / 2;
      for (const double value : {list[i], middle, std::nextafter(middle, 0), std::nextafter(middle, infinity),
                                 std::nextafter(above, 0), std::nextafter(list[i], infinity)}) {
        for (const Rounding rounding : roundings) {
          for (const Overflow overflow : {Overflow::ieee, Overflow::saturate}) {
            const std::uint64_t expected = oracle(d, list, value, rounding, overflow);
            ASSERT_EQ(encode(d, value, rounding, overflow), expected) << name(d) << " " << value;
            ASSERT_EQ(encode(d, -value, rounding, overflow), expected | sign_bit(d))
                << name(d) << " " << -value;
          }
        }
      }
    }
    for (const double value : {list.back() + ulp, 2 * list.back(), 1e300, infinity, 5e-324, 1e-300}) {
      for (const Rounding rounding : roundings) {
        for (const Overflow overflow : {Overflow::ieee, Overflow::saturate}) {
          EXPECT_EQ(encode(d, value, rounding, overflow), oracle(d, list, value, rounding, overflow))
              << name(d) << " " << value;
        }
      }
    }
  }
}

// PyTorch saturates where float8_e4m3fn overflows, ml_dtypes gives NaN: both are modes of ours.
TEST(Conversions, AreThoseOfPyTorchAndMlDtypes) {
  std::ifstream file(ASSAY_TEST_DATA "/dtypes/conversions.txt");
  std::string dtype, bits, numpy, torch;
  int lines = 0;
  while (file >> dtype >> bits >> numpy >> torch) {
    const DType d = *parse_dtype(dtype);
    const double value = std::bit_cast<float>(static_cast<std::uint32_t>(std::stoul(bits, nullptr, 16)));
    const auto expect = [&](const std::string& code, Overflow overflow) {
      if (code == "-") return;
      const std::uint64_t found = encode(d, value, Rounding::nearest_even, overflow);
      if (code == "nan") {
        EXPECT_TRUE(std::isnan(decode(d, found))) << dtype << " " << bits;
      } else {
        EXPECT_EQ(found, std::stoul(code, nullptr, 16)) << dtype << " " << bits;
      }
    };
    expect(numpy, Overflow::ieee);
    expect(torch, d == DType::float8_e4m3fn ? Overflow::saturate : Overflow::ieee);
    ++lines;
  }
  EXPECT_GT(lines, 5000);
}

// The awkward float32 values: around ties of both formats, subnormals, the largest, then random ones.
std::vector<std::uint32_t> awkward_floats() {
  std::vector<std::uint32_t> bits;
  for (const std::uint32_t top :
       {0x00000000u, 0x00001000u, 0x00002000u, 0x00400000u, 0x007fe000u, 0x00800000u, 0x3f800000u,
        0x3f801000u, 0x3f802000u, 0x3f803000u, 0x3ffff000u, 0x7f000000u, 0x7f7fe000u, 0x7f7ff000u}) {
    for (const std::uint32_t low :
         {0u, 1u, 0x7ffu, 0x800u, 0x801u, 0xfffu, 0x1000u, 0x1001u, 0x17ffu, 0x1800u, 0x1801u, 0x1fffu}) {
      if ((top + low) < 0x7f800000u) bits.push_back(top + low);
    }
  }
  std::mt19937 random(5);
  for (int i = 0; i < 50000; ++i) bits.push_back(static_cast<std::uint32_t>(random() % 0x7f800000u));
  return bits;
}

TEST(Conversions, WholeArraysAreRoundedAsSingleNumbersInAnyEnvironment) {
  std::mt19937_64 random(8);
  std::vector<double> values = {0.,       -0.,       infinity,    -infinity,     0x1.fffffefffffffp127,
                                0x1p-149, 0x1p-150,  -0x1p-150,   0x1.8p-149,    0x1.fffffep-127,
                                0x1p128,  0x1.8p-24, 1 + 0x1p-24, 1 + 0x1.8p-23, 0x1.fffffffp127};
  for (int i = 0; i < 20000; ++i) values.push_back(std::bit_cast<double>(random()));
  for (int i = 0; i < 20000; ++i)
    values.push_back(std::ldexp(1 + std::ldexp(static_cast<double>(random() >> 11), -53),
                                static_cast<int>(random() % 300) - 160));
  for (const std::uint64_t payload : {std::uint64_t{1}, std::uint64_t{1} << 30, std::uint64_t{1} << 50})
    values.push_back(std::bit_cast<double>((std::uint64_t{0xfff} << 52) | payload));
  for (const int rounding : {FE_TONEAREST, FE_UPWARD, FE_TOWARDZERO}) {
    std::vector<float> floats(values.size());
    std::fesetround(rounding);
    encode(DType::float32, values, std::as_writable_bytes(std::span(floats)));
    const int left = std::fegetround();
    std::fesetround(FE_TONEAREST);
    EXPECT_EQ(left, rounding);
    for (std::size_t i = 0; i < values.size(); ++i)
      ASSERT_EQ(std::bit_cast<std::uint32_t>(floats[i]), encode(DType::float32, values[i])) << values[i];
  }
}

TEST(Conversions, ShortMantissaFormatsRoundFloat32AsTheOracle) {
  for (const DType d : {DType::tfloat32, DType::hfloat32}) {
    const std::uint32_t unit = d == DType::tfloat32 ? 0x2000 : 0x1000;
    for (const std::uint32_t bits : awkward_floats()) {
      const double value = std::bit_cast<float>(bits);
      const std::uint32_t below = bits - bits % unit;
      const double low = std::bit_cast<float>(below);
      const double high = below + unit == 0x7f800000u ? 0x1p128 : double(std::bit_cast<float>(below + unit));
      for (const Rounding rounding : roundings) {
        bool up = rounding != Rounding::toward_zero && value - low > high - value;
        if (value - low == high - value) {
          up = rounding == Rounding::nearest_away ||
               (rounding == Rounding::nearest_even && (below / unit) % 2 == 1);
        }
        const std::uint64_t expected = below + (up ? unit : 0);
        ASSERT_EQ(encode(d, value, rounding), expected) << name(d) << " " << std::hex << bits;
        ASSERT_EQ(encode(d, -value, rounding), expected | 0x80000000u) << name(d) << " " << std::hex << bits;
        const bool overflows = expected == 0x7f800000u;
        ASSERT_EQ(encode(d, value, rounding, Overflow::saturate), overflows ? expected - unit : expected);
      }
    }
    EXPECT_EQ(encode(d, infinity), 0x7f800000u);
    EXPECT_EQ(encode(d, -infinity), 0xff800000u);
    // NaN: sign and leading payload are kept, quiet; a payload in the cut bits alone does not make infinity.
    for (const std::uint64_t payload : {std::uint64_t{1}, std::uint64_t{1} << 30, std::uint64_t{1} << 50}) {
      const double nan = std::bit_cast<double>((std::uint64_t{0xfff} << 52) | payload);
      const std::uint64_t code = encode(d, nan);
      EXPECT_EQ(code % unit, 0u);
      EXPECT_EQ(code >> 31, 1u);
      EXPECT_TRUE(std::isnan(decode(d, code))) << payload;
      EXPECT_EQ((code >> 21) & 1, (payload >> 50) & 1) << payload;
    }
  }
}

// Rounding twice, to float32 and then to tfloat32, would go wrong here.
TEST(Conversions, RoundOnce) {
  const double tie = 1 + 0x1p-11;
  EXPECT_EQ(round_to(DType::tfloat32, tie), 1);
  EXPECT_EQ(round_to(DType::tfloat32, tie + 0x1p-40), 1 + 0x1p-10);
  EXPECT_EQ(round_to(DType::float32, 1 + 0x1p-24 + 0x1p-52), 1 + 0x1p-23);
  EXPECT_EQ(round_to(DType::bfloat16, 1 + 0x1p-8 + 0x1p-40), 1 + 0x1p-7);
}

TEST(Conversions, Float32IsTheHardwares) {
  std::mt19937_64 random(9);
  for (int i = 0; i < 50000; ++i) {
    // Random significands over float32's range of exponents and beyond it.
    const double value =
        std::ldexp(static_cast<double>(random() >> 11), static_cast<int>(random() % 330) - 220);
    const auto expected = std::bit_cast<std::uint32_t>(static_cast<float>(value));
    ASSERT_EQ(encode(DType::float32, value), expected) << value;
    ASSERT_EQ(encode(DType::float64, value), std::bit_cast<std::uint64_t>(value)) << value;
  }
}

TEST(Conversions, IntegersAreRoundedAndClamped) {
  EXPECT_EQ(encode(DType::int8, 300), 0x7fu);
  EXPECT_EQ(encode(DType::int8, -300), 0x80u);
  EXPECT_EQ(encode(DType::uint8, -1), 0u);
  EXPECT_EQ(encode(DType::uint8, infinity), 0xffu);
  EXPECT_EQ(encode(DType::int64, 1e30), 0x7fffffffffffffffu);
  EXPECT_EQ(encode(DType::int64, -infinity), 0x8000000000000000u);
  EXPECT_EQ(encode(DType::int64, 0x1p63), 0x7fffffffffffffffu);
  EXPECT_EQ(encode(DType::uint64, 0x1p64), ~std::uint64_t{0});
  EXPECT_EQ(encode(DType::uint64, 0x1p63), 0x8000000000000000u);
  EXPECT_EQ(encode(DType::int32, std::nan("")), 0u);
  EXPECT_EQ(decode(DType::int16, encode(DType::int16, -2.5)), -2);
  EXPECT_EQ(decode(DType::int16, encode(DType::int16, -2.5, Rounding::nearest_away)), -3);
  EXPECT_EQ(decode(DType::int16, encode(DType::int16, -2.9, Rounding::toward_zero)), -2);
  EXPECT_EQ(encode(DType::boolean, -.5), 1u);
}

TEST(Conversions, SpansAgreeWithSingleElements) {
  std::mt19937_64 random(3);
  for (const DType d : all_dtypes) {
    std::vector<std::byte> bytes(64 * size_of(d) + 1);
    for (std::byte& b : bytes) b = std::byte(random());
    // One byte off: any alignment is allowed.
    const std::span<const std::byte> unaligned = std::span<const std::byte>(bytes).subspan(1);
    std::vector<double> values(64);
    decode(d, unaligned, values);
    for (std::size_t i = 0; i < values.size(); ++i) {
      std::uint64_t code = 0;
      std::memcpy(&code, unaligned.data() + i * size_of(d), size_of(d));
      const double single = decode(d, code);
      EXPECT_TRUE(values[i] == single || (std::isnan(values[i]) && std::isnan(single)))
          << name(d) << " " << code;
    }
    std::vector<std::byte> back(64 * size_of(d));
    encode(d, values, back);
    for (std::size_t i = 0; i < values.size(); ++i) {
      std::uint64_t code = 0;
      std::memcpy(&code, back.data() + i * size_of(d), size_of(d));
      EXPECT_EQ(code, encode(d, values[i])) << name(d);
    }
  }
}

}  // namespace
}  // namespace assay::conversions_test
