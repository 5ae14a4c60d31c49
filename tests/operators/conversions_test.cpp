#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>

#include "calls.h"

// Roundings to other formats, where they are easily wrong, and what a rounding does to a bound.
namespace assay::conversions_test {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::IsNan;

double bound(std::string_view op, std::string_view name, const std::vector<NamedTensor>& inputs,
             std::string_view attributes) {
  return tensor_of(compute_bound(find_operator(op), inputs, attributes_of(attributes), {0x1p-24, 0x1p-149}),
                   name)
      .value(0);
}

TEST(Cast, RoundsTiesInEachMode) {
  // The last place of tfloat32 is 2^-10: ties at even and at odd.
  const auto x = values("x", {4}, {1 + 0x1p-11, 1 + 3 * 0x1p-11, -1 - 0x1p-11, 1 + 0x1p-10});
  EXPECT_THAT(output("cast", "y", {x}, "to=\"tf32\"").values(), ElementsAre(1, 1 + 0x1p-9, -1, 1 + 0x1p-10));
  EXPECT_THAT(output("cast", "y", {x}, "to=\"tf32\",rounding=\"nearest_away\"").values(),
              ElementsAre(1 + 0x1p-10, 1 + 0x1p-9, -1 - 0x1p-10, 1 + 0x1p-10));
  EXPECT_THAT(output("cast", "y", {x}, "to=\"tf32\",rounding=\"toward_zero\"").values(),
              ElementsAre(1, 1 + 0x1p-10, -1, 1 + 0x1p-10));
}

TEST(Cast, SaturatesWhereItShould) {
  const auto x = values("x", {3}, {1000, -infinity, 464});
  EXPECT_THAT(output("cast", "y", {x}, "to=\"float8_e4m3fn\",saturate=true").values(),
              ElementsAre(448, -448, 448));
  const std::vector<double> y = output("cast", "y", {x}, "to=\"float8_e4m3fn\"").values();
  EXPECT_THAT(y, ElementsAre(IsNan(), IsNan(), 448));
  EXPECT_THAT(output("cast", "y", {x}, "to=\"float16\"").values(), ElementsAre(1000, -infinity, 464));
}

TEST(Cast, KeepsTheSignAndLeadingPayloadOfANaN) {
  const auto x = values("x", {1}, {std::bit_cast<double>(0xfffc'0000'0000'0001u)});
  const auto y = std::bit_cast<std::uint64_t>(output("cast", "y", {x}, "to=\"bfloat16\"").value(0));
  EXPECT_EQ(y, 0xfffc'0000'0000'0000u);
}

// Through float64 a signalling NaN would come out quiet, and an int64 rounded.
TEST(BitCast, KeepsEveryBit) {
  const std::vector<std::uint32_t> codes = {0x7f800001, 0xffbfffff, 0x80000000, 1};
  const auto* first = reinterpret_cast<const std::byte*>(codes.data());
  const Tensor x(DType::float32, {4}, std::vector<std::byte>(first, first + 16));
  EXPECT_THAT(output("bitcast", "y", {{"x", x}}, "").indices(),
              ElementsAre(0x7f800001, 0xffbfffff, 0x80000000, 1));
  const std::int64_t odd = (std::int64_t{1} << 53) + 1;
  EXPECT_THAT(output("bitcast", "y", {indices("x", {2}, {odd, -1})}, "").indices(), ElementsAre(odd, -1));
}

// amax = 448 makes the scale 1: 1.0625 is a tie of float8_e4m3fn and a device's quotient may fall to either
// side.
TEST(QuantizeFp8Block, AQuotientAtATieMayGoEitherWay) {
  const auto tie = values("x", {2}, {1.0625, 448}), clear = values("x", {2}, {1.07, 448});
  EXPECT_EQ(bound("quantize_fp8_block", "code", {tie}, "block=[2]"), 0.125);
  EXPECT_EQ(bound("quantize_fp8_block", "code", {clear}, "block=[2]"), 0);
  EXPECT_GE(bound("quantize_fp8_block", "dequantized", {tie}, "block=[2]"), 0.125);
  EXPECT_LE(bound("quantize_fp8_block", "dequantized", {clear}, "block=[2]"), 0x1p-20);
}

TEST(QuantizeFp8Block, ABlockWithANaNIsNaN) {
  const auto x = values("x", {4}, {1, std::nan(""), 2, 4});
  EXPECT_THAT(output("quantize_fp8_block", "scale", {x}, "block=[2]").values(),
              ElementsAre(IsNan(), 4. / 448));
  EXPECT_THAT(output("quantize_fp8_block", "code", {x}, "block=[2]").values(),
              ElementsAre(IsNan(), IsNan(), 224, 448));
}

TEST(QuantizeMx, ScalesArePowersOfTwoAndMaySaturate) {
  // 449 = 1.75 2^8: its exponent is that of 448, beyond which it saturates.
  const auto x = values("x", {4}, {449, 3, 0, 0});
  EXPECT_THAT(output("quantize_mx", "scale", {x}, "block_size=2").values(), ElementsAre(1, 0x1p-127));
  EXPECT_THAT(output("quantize_mx", "code", {x}, "block_size=2").values(), ElementsAre(448, 3, 0, 0));
  EXPECT_THAT(output("quantize_mx", "scale", {x}, "block_size=2,scale_rounding=\"ceil\"").values(),
              ElementsAre(2, 0x1p-127));
  const auto special = values("x", {4}, {infinity, 1, std::nan(""), 1});
  EXPECT_THAT(output("quantize_mx", "scale", {special}, "block_size=2").values(), Each(IsNan()));
  EXPECT_THAT(output("quantize_mx", "dequantized", {special}, "block_size=2").values(), Each(IsNan()));
}

TEST(Quantize, RoundsBeforeItAddsTheZeroPointAndThenClamps) {
  const auto x = values("x", {5}, {0.5, 1.5, -0.5, 1000, -1000}), scale = values("scale", {}, {1});
  const auto zero = indices("zero_point", {}, {3});
  EXPECT_THAT(output("quantize", "code", {x, scale, zero}, "").indices(), ElementsAre(3, 5, 3, 127, -128));
  EXPECT_THAT(output("quantize", "dequantized", {x, scale, zero}, "").values(),
              ElementsAre(0, 2, 0, 124, -131));
}

class WrongConversion : public testing::TestWithParam<Wrong> {};

TEST_P(WrongConversion, IsAnErrorThatSaysSo) {
  expect_error(GetParam());
}

const NamedTensor x46 = zeros("x", {4, 6}), scale = zeros("scale", {});

INSTANTIATE_TEST_SUITE_P(
    Calls, WrongConversion,
    testing::Values(
        Wrong{"cast", {x46}, "to=\"float9\"", "cast: to is \"float9\"; expected a dtype"},
        Wrong{"cast", {x46}, "to=\"int8\"", "to is int8; expected a floating dtype"},
        Wrong{"cast", {x46}, "to=\"bf16\",rounding=\"up\"", "rounding is \"up\"; expected nearest_even"},
        Wrong{"quantize", {x46, scale}, "to=\"float16\"", "to is float16; expected an integer dtype"},
        Wrong{"quantize", {x46, scale}, "quant_max=200", "codes from -128 to 200 are no range of int8"},
        Wrong{"quantize", {x46, scale}, "quant_min=5,quant_max=4", "codes from 5 to 4"},
        Wrong{"quantize", {x46, scale}, "axis=0,block=[2]", "axis and block are given"},
        Wrong{"quantize", {x46, scale}, "axis=0", "input 'scale' has shape []; expected [S*]"},
        Wrong{"quantize", {x46, scale}, "axis=2", "dim 2 is outside"},
        Wrong{"quantize", {x46, scale}, "block=[2,0]", "block is [2, 0] for a tensor of shape [4, 6]"},
        Wrong{"quantize", {x46, scale, indices("zero_point", {}, {200})}, "", "zero_point 200 is no code"},
        Wrong{"quantize_fp8_block", {x46}, "block=[1,2,3]", "block is [1, 2, 3]"},
        Wrong{"quantize_fp8_block", {x46}, "to=\"float16\"", "to is float16; expected float8_e4m3fn"},
        Wrong{"quantize_mx", {x46}, "block_size=0", "block is [1, 0]"},
        Wrong{"quantize_mx",
              {x46},
              "scale_rounding=\"near\"",
              "scale_rounding is \"near\"; expected floor or ceil"},
        Wrong{"quantize_mx", {zeros("x", {})}, "", "x is a scalar"},
        Wrong{"fp8_block_matmul",
              {zeros("a", {2, 8}), zeros("scale_a", {2, 1}), zeros("b", {3, 8}), zeros("scale_b", {1, 2})},
              "block=4",
              "'scale_a' has shape [2, 1]"},
        Wrong{"fp8_block_matmul",
              {zeros("a", {2, 8}), zeros("scale_a", {2, 1}), zeros("b", {}), zeros("scale_b", {1, 2})},
              "",
              "'b' has shape []; expected [N,K]"},
        Wrong{"fp8_block_matmul",
              {zeros("a", {2, 8}), zeros("scale_a", {2, 1}), zeros("b", {3, 8}), zeros("scale_b", {1, 2})},
              "block=0",
              "block is 0; expected 1 or more"},
        Wrong{"fp8_block_matmul",
              {zeros("a", {2, 8}), zeros("scale_a", {2, 1}), zeros("b", {3, 8}), zeros("scale_b", {1, 2})},
              "rows=0",
              "rows is 0; expected 1 or more"}),
    [](const auto& info) { return info.param.op + std::to_string(info.index); });

}  // namespace
}  // namespace assay::conversions_test
