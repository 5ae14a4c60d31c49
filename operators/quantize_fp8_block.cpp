#include "assay/operators/engine/quantize.h"

namespace assay {
namespace {

// 1 x 128 for activations, 128 x 128 for weights. A scale of 0 has no quotient: amax is at least amax_floor.
struct QuantizeFp8Block {
  static constexpr std::string_view name = "quantize_fp8_block";
  static constexpr std::string_view math =
      "scale = max(amax |x| over the block, amax_floor) / largest code, code = x / scale rounded";
  static constexpr std::string_view source = "DeepSeek-V3 arXiv:2412.19437 sec. 3.3.2";
  static constexpr std::string_view aliases[] = {"npu_dynamic_block_quant", "per_token_group_quant_fp8",
                                                 "per_block_cast_to_fp8", "per_token_cast_to_fp8",
                                                 "act_quant"};
  static constexpr Attribute attributes[] = {
      {"to", "\"float8_e4m3fn\"", "dtype of the codes: float8_e4m3fn or float8_e5m2"},
      {"block", "[1, 128]", "extents of a block over the trailing dimensions"},
      {"amax_floor", "1e-4", "amax of a block is at least this"}};
  static constexpr Arg args[] = {
      {"x", "X*", Role::input, -8, 8},
      {.name = "code", .shape = "X*", .role = Role::output, .terms = "1"},
      {.name = "scale", .shape = "S*", .role = Role::output, .terms = "1"},
      {.name = "dequantized", .shape = "X*", .role = Role::output, .terms = "1"},
  };
  static constexpr Example examples[] = {
      {"X=3x10", "block=[1,4]"}, {"X=2x5x9", "block=[4,4],to=\"float8_e5m2\""}, {"X=4x6", "amax_floor=100"}};

  static void bind(Dims& d, InputShapes inputs, const Attributes& a) {
    fp8_attribute(a, name);
    d.set("S", block_groups(shape_of_input(inputs, "x"), a.integers("block"), name).shape);
  }

  template <class T>
  static void forward(Tensors<T>& t, const Dims& d, const Attributes& a) {
    const ScaleGroups groups = block_groups(d.extents("X"), a.integers("block"), name);
    const DType to = fp8_attribute(a, name);
    t.slot("scale").values =
        largest_magnitudes(t.slot("x").values, groups, constant<T>(a.real("amax_floor")));
    for (T& s : t.slot("scale").values) s /= T(max_finite(to));
    quantize_with(t, groups, to);
  }
};

}  // namespace

namespace ops {
extern constexpr Operator quantize_fp8_block = describe<QuantizeFp8Block>();
}

}  // namespace assay
