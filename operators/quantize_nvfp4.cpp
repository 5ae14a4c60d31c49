#include "assay/golden/error.h"
#include "assay/operators/engine/axes.h"
#include "assay/operators/engine/fp4.h"
#include "assay/operators/engine/quantize.h"

namespace assay {
namespace {

// Two levels of scales: one of float8_e4m3fn for each block, one of float32 for all.
struct QuantizeNvfp4 {
  static constexpr std::string_view name = "quantize_nvfp4";
  static constexpr std::string_view math =
      "scale = amax |x| of the block / 6 / global_scale rounded to float8_e4m3fn, code = x / (scale "
      "global_scale) rounded to 0, .5, 1, 1.5, 2, 3, 4 or 6";
  static constexpr std::string_view source =
      "NVIDIA, Pretraining Large Language Models with NVFP4, arXiv:2509.25149 app. A; torchao "
      "nvfp4_tensor.py";
  static constexpr std::string_view aliases[] = {"nvfp4_quantize", "to_nvfp4"};
  static constexpr Attribute attributes[] = {
      {"block_size", "16", "elements with one scale"},
      {"dim", "-1", "the dimension that is cut into blocks"},
      {"scale_floor", "0",
       "the least scale of a block (torchao: 2^-6); codes of a block without scale are 0"}};
  static constexpr bool is_coarse = true;
  static constexpr Arg args[] = {
      {"x", "X*", Role::input, -8, 8},
      {.name = "global_scale",
       .shape = "",
       .role = Role::input,
       .low = 1e-3,
       .high = 4e-3,
       .optional = true,
       .domain = scale_domain},
      {.name = "code", .shape = "X*", .role = Role::output, .terms = "1"},
      {.name = "scale", .shape = "S*", .role = Role::output, .terms = "1"},
      {.name = "global_scale_used", .shape = "", .role = Role::output, .terms = "1"},
      {.name = "dequantized", .shape = "X*", .role = Role::output, .terms = "1"},
  };
  static constexpr Example examples[] = {{"X=3x35", "", "global_scale"},
                                         {"X=9x4", "dim=0,block_size=4"},
                                         {"X=2x5", "block_size=3,scale_floor=0.015625", "global_scale"}};

  static ScaleGroups groups_of(const Shape& x, const Attributes& a) {
    if (x.empty()) throw Error("quantize_nvfp4: x is a scalar; expected at least one dimension");
    const std::size_t dim = axis(a.integer("dim"), x.size());
    std::vector<std::int64_t> block(x.size(), 1);
    block[dim] = a.integer("block_size");
    return block_groups(x, block, name);
  }

  static void bind(Dims& d, InputShapes inputs, const Attributes& a) {
    if (!(a.real("scale_floor") >= 0))
      throw Error("quantize_nvfp4: scale_floor is {}; expected 0 or above", a.real("scale_floor"));
    d.set("S", groups_of(shape_of_input(inputs, "x"), a).shape);
  }

  template <class T>
  static void forward(Tensors<T>& t, const Dims& d, const Attributes& a) {
    const ScaleGroups groups = groups_of(d.extents("X"), a);
    const std::vector<T>& x = t.slot("x").values;
    std::vector<T>& scale = t.slot("scale").values;
    scale = largest_magnitudes(x, groups, T(0));
    T& global = t.slot("global_scale_used").values[0];
    if (const auto given = t.optional("global_scale")) {
      global = *given.data();
    } else {
      // The largest block then has the largest scale.
      T amax = T(0);
      for (const T& of_block : scale) amax = maximum(amax, of_block);
      global = amax / T(largest_fp4 * max_finite(DType::float8_e4m3fn));
    }
    const double least = a.real("scale_floor");
    for (T& s : scale) {
      const T wanted = global == T(0) ? T(0) : s / T(largest_fp4) / global;
      s = stepped<T>(wanted, [least](double v) {
        const double floored = std::isnan(v) ? v : std::max(v, least);
        return round_to(DType::float8_e4m3fn, floored, Rounding::nearest_even, Overflow::saturate);
      });
    }
    const Positions group = groups.of_elements();
    for (std::size_t i = 0; i < x.size(); ++i) {
      const T factor = scale[static_cast<std::size_t>(group[i])] * global;
      const T code = factor == T(0) ? T(0) : stepped<T>(x[i] / factor, round_to_fp4);
      t.slot("code").values[i] = code;
      t.slot("dequantized").values[i] = code * factor;
    }
  }
};

}  // namespace

namespace ops {
extern constexpr Operator quantize_nvfp4 = describe<QuantizeNvfp4>();
}

}  // namespace assay
