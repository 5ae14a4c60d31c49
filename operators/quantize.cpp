#include "assay/operators/engine/quantize.h"

#include <algorithm>
#include <cmath>

#include "assay/golden/error.h"
#include "assay/operators/engine/axes.h"
#include "assay/operators/engine/cast.h"

namespace assay {

Positions ScaleGroups::of_elements() const {
  Shape counts = x;
  for (std::size_t d = 0; d < x.size(); ++d) counts[d] = (x[d] + box[d] - 1) / box[d];
  const Shape stride = strides_of(counts);
  return positions_of(x, [&](std::size_t d, std::int64_t i) { return i / box[d] * stride[d]; });
}

ScaleGroups block_groups(const Shape& x, const std::vector<std::int64_t>& block, std::string_view op) {
  if (block.size() > x.size() || std::ranges::any_of(block, [](std::int64_t b) { return b < 1; })) {
    throw Error(
        "{}: block is {} for a tensor of shape {}; expected extents of 1 or more, no more than it has", op,
        to_string(block), to_string(x));
  }
  ScaleGroups g{x, Shape(x.size() - block.size(), 1), x};
  g.box.insert(g.box.end(), block.begin(), block.end());
  for (std::size_t d = 0; d < x.size(); ++d) g.shape[d] = x[d] / g.box[d] + (x[d] % g.box[d] != 0 ? 1 : 0);
  return g;
}

ScaleGroups scale_groups(const Shape& x, const Attributes& a, std::string_view op) {
  if (a.has("axis") && a.has("block")) throw Error("{}: axis and block are given; expected one of them", op);
  if (a.has("block")) return block_groups(x, a.integers("block"), op);
  ScaleGroups g{x, x, {}};
  for (std::int64_t& extent : g.box) extent = std::max<std::int64_t>(extent, 1);
  if (a.has("axis")) {
    if (x.empty()) throw Error("{}: a scalar has no axis", op);
    const std::size_t along = axis(a.integer("axis"), x.size());
    g.box[along] = 1;
    g.shape = {x[along]};
  }
  return g;
}

DType fp8_attribute(const Attributes& a, std::string_view op) {
  const DType to = dtype_attribute(a, "to", op);
  if (to != DType::float8_e4m3fn && to != DType::float8_e5m2)
    throw Error("{}: to is {}; expected float8_e4m3fn or float8_e5m2", op, name(to));
  return to;
}

namespace {

struct Quantize {
  static constexpr std::string_view name = "quantize";
  static constexpr std::string_view math =
      "code = clamp(round(x / scale) + zero_point), dequantized = (code - zero_point) scale";
  static constexpr std::string_view source = "torch.quantize_per_tensor, torch.quantize_per_channel";
  static constexpr std::string_view aliases[] = {"torch.quantize_per_tensor",
                                                 "torch.quantize_per_channel",
                                                 "quantize_per_tensor",
                                                 "quantize_per_channel",
                                                 "npu_quantize",
                                                 "QuantizeLinear"};
  static constexpr Attribute attributes[] = {{"to", "\"int8\"", "integer dtype of the codes"},
                                             {"quant_min", "null", "least code; null: of the dtype"},
                                             {"quant_max", "null", "largest code; null: of the dtype"},
                                             axis_attribute,
                                             block_attribute};
  static constexpr Arg args[] = {
      {"x", "X*", Role::input, -8, 8},
      {.name = "scale", .shape = "S*", .role = Role::param, .low = .01, .high = .25, .domain = scale_domain},
      {.name = "zero_point", .shape = "S*", .role = Role::index, .low = 0, .high = 9, .optional = true},
      {"code", "X*", Role::output_index},
      {.name = "dequantized", .shape = "X*", .role = Role::output, .terms = "1"},
  };
  static constexpr Example examples[] = {{"X=3x7,S=", "", "zero_point"},
                                         {"X=4x5,S=4", "axis=0,quant_min=-7,quant_max=7", "zero_point"},
                                         {"X=5x3,S=3", "axis=-1,to=\"uint8\""},
                                         {"X=2x3x9,S=2x2x3", "block=[2,4]"}};

  struct Range {
    std::int64_t least, most;
  };
  static Range range_of(const Attributes& a) {
    const DType to = dtype_attribute(a, "to", name);
    if (is_float(to) || to == DType::boolean)
      throw Error("quantize: to is {}; expected an integer dtype", assay::name(to));
    // 32 bits at most: codes are exact in float64 on the way.
    const Range all = {static_cast<std::int64_t>(round_to(to, -0x1p31)),
                       static_cast<std::int64_t>(round_to(to, 0x1p31 - 1))};
    const Range r = {a.has("quant_min") ? a.integer("quant_min") : all.least,
                     a.has("quant_max") ? a.integer("quant_max") : all.most};
    if (r.least > r.most || r.least < all.least || r.most > all.most)
      throw Error("quantize: codes from {} to {} are no range of {}", r.least, r.most, assay::name(to));
    return r;
  }

  static void bind(Dims& d, InputShapes inputs, const Attributes& a) {
    range_of(a);
    d.set("S", scale_groups(shape_of_input(inputs, "x"), a, name).shape);
  }

  // round(x / scale) is clamped to where code - zero_point may lie, so that nothing is added to a rounded
  // value.
  template <class T>
  static void forward(Tensors<T>& t, const Dims& d, const Attributes& a) {
    const Positions group = scale_groups(d.extents("X"), a, name).of_elements();
    const std::vector<T>&x = t.slot("x").values, &scale = t.slot("scale").values;
    const Range range = range_of(a);
    for (std::size_t i = 0; i < x.size(); ++i) {
      const auto g = static_cast<std::size_t>(group[i]);
      const std::int64_t zero = t.has("zero_point") ? t.slot("zero_point").indices[g] : 0;
      if (zero < range.least || zero > range.most)
        throw Error("quantize: zero_point {} is no code from {} to {}", zero, range.least, range.most);
      const auto least = static_cast<double>(range.least - zero),
                 most = static_cast<double>(range.most - zero);
      const T steps = stepped<T>(x[i] / scale[g], [=](double v) {
        return std::isnan(v) ? v : std::clamp(round_to(DType::int64, v), least, most);
      });
      const auto whole = static_cast<double>(steps);
      t.slot("code").indices[i] = std::isnan(whole) ? zero : static_cast<std::int64_t>(whole) + zero;
      t.slot("dequantized").values[i] = steps * scale[g];
    }
  }
};

}  // namespace

namespace ops {
extern constexpr Operator quantize = describe<Quantize>();
}

}  // namespace assay
