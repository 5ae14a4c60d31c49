#include <algorithm>
#include <cmath>
#include <limits>

#include "assay/golden/error.h"
#include "assay/operators/engine/axes.h"
#include "assay/operators/engine/cast.h"
#include "assay/operators/engine/fp4.h"
#include "assay/operators/engine/quantize.h"

namespace assay {
namespace {

// Scales are powers of two (E8M0, 2^-127 to 2^127 and NaN), so that nothing but the codes is rounded.
struct QuantizeMx {
  static constexpr std::string_view name = "quantize_mx";
  static constexpr std::string_view math =
      "scale = 2^(floor(log2 amax) - exponent of the largest code), code = x / scale rounded, saturated";
  static constexpr std::string_view source =
      "OCP Microscaling Formats (MX) v1.0 sec. 6.3; ceil: NVIDIA Transformer Engine's MXFP8";
  static constexpr std::string_view aliases[] = {"npu_dynamic_mx_quant", "DynamicMxQuant", "to_mx"};
  static constexpr Attribute attributes[] = {
      {"to", "\"float8_e4m3fn\"",
       "dtype of the codes: float8_e4m3fn, float8_e5m2, or float4_e2m1 as numbers"},
      {"block_size", "32", "elements with one scale"},
      {"dim", "-1", "the dimension that is cut into blocks"},
      {"scale_rounding", "\"floor\"",
       "floor: amax may saturate; ceil: the least scale for which it does not"}};
  static constexpr bool is_coarse = true;
  static constexpr Arg args[] = {
      {"x", "X*", Role::input, -8, 8},
      {.name = "code", .shape = "X*", .role = Role::output, .exact = Exact::bits},
      {.name = "scale", .shape = "S*", .role = Role::output, .exact = Exact::bits},
      {.name = "dequantized", .shape = "X*", .role = Role::output, .exact = Exact::bits},
  };
  static constexpr Example examples[] = {{"X=3x70"},
                                         {"X=9x4", "dim=0,block_size=4,to=\"float8_e5m2\""},
                                         {"X=2x5", "block_size=3,scale_rounding=\"ceil\""},
                                         {"X=2x37", "to=\"float4_e2m1\""}};

  static ScaleGroups groups_of(const Shape& x, const Attributes& a) {
    if (x.empty()) throw Error("quantize_mx: x is a scalar; expected at least one dimension");
    const std::size_t dim = axis(a.integer("dim"), x.size());
    std::vector<std::int64_t> block(x.size(), 1);
    block[dim] = a.integer("block_size");
    return block_groups(x, block, name);
  }

  static bool rounds_up(const Attributes& a) {
    const std::string& rounding = a.text("scale_rounding");
    if (rounding != "floor" && rounding != "ceil")
      throw Error("quantize_mx: scale_rounding is \"{}\"; expected floor or ceil", rounding);
    return rounding == "ceil";
  }

  // What the codes are numbers of.
  class Codes {
   public:
    explicit Codes(const Attributes& a)
        : is_fp4_(a.text("to") == "float4_e2m1"),
          fp8_(is_fp4_ ? DType::float8_e4m3fn : fp8_attribute(a, name)) {}
    double largest() const { return is_fp4_ ? largest_fp4 : max_finite(fp8_); }
    double operator()(double v) const {
      return is_fp4_ ? round_to_fp4(v) : round_to(fp8_, v, Rounding::nearest_even, Overflow::saturate);
    }

   private:
    bool is_fp4_;
    DType fp8_;
  };

  static void bind(Dims& d, InputShapes inputs, const Attributes& a) {
    [[maybe_unused]] const Codes codes(a);
    rounds_up(a);
    d.set("S", groups_of(shape_of_input(inputs, "x"), a).shape);
  }

  // amax = m 2^e, 1/2 <= m < 1. An infinite one has no scale, as a NaN has none.
  static double scale_of(double amax, double largest, bool up) {
    if (!std::isfinite(amax)) return std::numeric_limits<double>::quiet_NaN();
    int e = 0, e_largest = 0;
    const double m = std::frexp(amax, &e), m_largest = std::frexp(largest, &e_largest);
    const int exponent = amax == 0 ? -127 : e - e_largest + (up && m > m_largest ? 1 : 0);
    return std::ldexp(1.0, std::clamp(exponent, -127, 127));
  }

  template <class T>
  static void forward(Tensors<T>& t, const Dims& d, const Attributes& a) {
    const ScaleGroups groups = groups_of(d.extents("X"), a);
    const Codes codes(a);
    const bool up = rounds_up(a);
    t.slot("scale").values = largest_magnitudes(t.slot("x").values, groups, T(0));
    for (T& s : t.slot("scale").values)
      s = stepped<T>(s, [&](double amax) { return scale_of(amax, codes.largest(), up); });
    // By steps, though they are exact: a Bound would count roundings that cannot happen.
    const Positions group = groups.of_elements();
    const std::vector<T>& x = t.slot("x").values;
    for (std::size_t i = 0; i < x.size(); ++i) {
      const T s = t.slot("scale").values[static_cast<std::size_t>(group[i])];
      const auto power = static_cast<double>(s);
      t.slot("code").values[i] = stepped<T>(x[i], [&](double v) { return codes(v / power); });
      t.slot("dequantized").values[i] =
          stepped<T>(t.slot("code").values[i], [=](double code) { return code * power; });
    }
  }
};

}  // namespace

namespace ops {
extern constexpr Operator quantize_mx = describe<QuantizeMx>();
}

}  // namespace assay
