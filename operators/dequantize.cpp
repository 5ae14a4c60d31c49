#include "assay/operators/engine/quantize.h"

namespace assay {
namespace {

struct Dequantize {
  static constexpr std::string_view name = "dequantize";
  static constexpr std::string_view math = "y = (code - zero_point) scale";
  static constexpr std::string_view source = "torch.dequantize; ONNX DequantizeLinear";
  static constexpr std::string_view aliases[] = {"torch.dequantize", "DequantizeLinear"};
  static constexpr Attribute attributes[] = {axis_attribute, block_attribute};
  static constexpr Arg args[] = {
      {"code", "X*", Role::input, -127, 127},
      {.name = "scale", .shape = "S*", .role = Role::param, .low = .01, .high = .25, .domain = scale_domain},
      {.name = "zero_point", .shape = "S*", .role = Role::index, .low = -5, .high = 9, .optional = true},
      {.name = "y", .shape = "X*", .role = Role::output, .terms = "1"},
  };
  static constexpr Example examples[] = {
      {"X=3x7,S=", "", "zero_point"}, {"X=5x3,S=3", "axis=-1"}, {"X=3x9,S=2x3", "block=[2,4]", "zero_point"}};

  static void bind(Dims& d, InputShapes inputs, const Attributes& a) {
    d.set("S", scale_groups(shape_of_input(inputs, "code"), a, name).shape);
  }

  template <class T>
  static void forward(Tensors<T>& t, const Dims& d, const Attributes& a) {
    const Positions group = scale_groups(d.extents("X"), a, name).of_elements();
    const std::vector<T>&code = t.slot("code").values, &scale = t.slot("scale").values;
    for (std::size_t i = 0; i < code.size(); ++i) {
      const auto g = static_cast<std::size_t>(group[i]);
      const T steps = t.has("zero_point") ? code[i] - number<T>(t.slot("zero_point").indices[g]) : code[i];
      t.slot("y").values[i] = steps * scale[g];
    }
  }
};

}  // namespace

namespace ops {
extern constexpr Operator dequantize = describe<Dequantize>();
}

}  // namespace assay
