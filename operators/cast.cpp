#include "assay/operators/engine/cast.h"

#include "assay/golden/error.h"
#include "assay/operators/engine/copy.h"

namespace assay {

DType dtype_attribute(const Attributes& a, std::string_view attribute, std::string_view op) {
  const std::optional<DType> dtype = parse_dtype(a.text(attribute));
  if (!dtype) throw Error("{}: {} is \"{}\"; expected a dtype", op, attribute, a.text(attribute));
  return *dtype;
}

Conversion conversion_of(const Attributes& a, std::string_view op) {
  Conversion c;
  if (a.has("to")) c.to = dtype_attribute(a, "to", op);
  if (c.to && !is_float(*c.to)) throw Error("{}: to is {}; expected a floating dtype", op, name(*c.to));
  constexpr std::pair<std::string_view, Rounding> modes[] = {{"nearest_even", Rounding::nearest_even},
                                                             {"nearest_away", Rounding::nearest_away},
                                                             {"toward_zero", Rounding::toward_zero}};
  const std::string& wanted = a.text("rounding");
  const auto* mode = std::begin(modes);
  while (mode != std::end(modes) && mode->first != wanted) ++mode;
  if (mode == std::end(modes)) {
    throw Error("{}: rounding is \"{}\"; expected nearest_even, nearest_away or toward_zero", op, wanted);
  }
  c.rounding = mode->second;
  if (a.flag("saturate")) c.overflow = Overflow::saturate;
  return c;
}

namespace {

struct Cast {
  static constexpr std::string_view name = "cast";
  static constexpr std::string_view math = "y = x, rounded once to the dtype `to`";
  static constexpr std::string_view source =
      "IEEE 754-2019 sec. 5.4.2; saturation: OCP OFP8 rev. 1.0 sec. 5.2";
  static constexpr std::string_view aliases[] = {"torch.Tensor.to", "to", "_to_copy", "npu_dtype_cast",
                                                 "Cast"};
  static constexpr Attribute attributes[] = {to_attribute, rounding_attribute, saturate_attribute};
  static constexpr Arg args[] = {
      {.name = "x", .shape = "N*", .role = Role::input, .domain = everywhere},
      {.name = "grad_y", .shape = "N*", .role = Role::grad_output, .domain = everywhere},
      {.name = "y", .shape = "N*", .role = Role::output, .exact = Exact::bits},
      {.name = "grad_x", .shape = "N*", .role = Role::grad_input, .exact = Exact::bits},
  };
  static constexpr Example examples[] = {{"N=4x9", "to=\"bfloat16\""},
                                         {"N=31", "to=\"float8_e4m3fn\",saturate=true"},
                                         {"N=7", "to=\"tfloat32\",rounding=\"toward_zero\""},
                                         {"N=5", "to=\"hfloat32\",rounding=\"nearest_away\""}};
  static constexpr ExactFill exact_fill = ExactFill::small_integers;
  static constexpr std::string_view straight_through = "to";

  static void bind(Dims&, InputShapes, const Attributes& a) { conversion_of(a, name); }

  template <class T>
  static void forward(Tensors<T>& t, const Dims& d, const Attributes& a) {
    const auto x = t["x"], y = t["y"];
    const std::int64_t N = d.at("N");
    const Conversion convert = conversion_of(a, name);
    for (std::int64_t n = 0; n < N; ++n) y(n) = convert(x(n));
  }
  template <class T>
  static void backward(Tensors<T>& t, const Dims&, const Attributes&) {
    t.slot("grad_x").values = t.slot("grad_y").values;
  }
};

}  // namespace

namespace ops {
extern constexpr Operator cast = describe<Cast>();
}

}  // namespace assay
