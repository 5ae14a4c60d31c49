#include "assay/operators/engine/cast.h"
#include "assay/operators/engine/grouped_matmul.h"
#include "assay/operators/engine/reshape.h"

namespace assay {
namespace {

// One kernel: the result is rounded once, from the accumulator to `to`.
struct GroupedMatMulReshapeCast : GroupedMatMulBase {
  static constexpr std::string_view name = "grouped_matmul_reshape_cast";
  static constexpr std::string_view math = "y = grouped_matmul(x, w), reshaped and rounded to the dtype `to`";
  static constexpr std::string_view source =
      "Training Report of TeleChat3-MoE: fused GroupedMatmul, Reshape and Cast";
  static constexpr Attribute attributes[] = {
      transpose_weight,
      {"shape", "null", "extents of y; one -1 is what the others leave"},
      to_attribute,
      rounding_attribute,
      saturate_attribute};
  static constexpr Arg args[] = {
      {"x", "T,K", Role::input},
      {"w", "G,K,N", Role::param},
      {.name = "group_sizes", .shape = "G", .role = Role::index, .sums_to = "T"},
      {"grad_y", "Y*", Role::grad_output},
      {.name = "y", .shape = "Y*", .role = Role::output, .terms = "K"},
      {.name = "grad_x", .shape = "T,K", .role = Role::grad_input, .terms = "N"},
      {.name = "grad_w", .shape = "G,K,N", .role = Role::grad_input, .terms = "largest"},
  };
  static constexpr Example examples[] = {
      {"T=8,K=5,G=3,N=4", "shape=[2,-1,2],to=\"bfloat16\""},
      {"T=6,K=3,G=4,N=2", "transpose_weight=true,shape=[-1],to=\"float16\""},
      {"T=5,K=7,G=2,N=3", "shape=[5,1,3]"}};
  static constexpr ExactFill exact_fill = ExactFill::small_integers;
  static constexpr std::string_view straight_through = "to";

  static void bind(Dims& d, InputShapes inputs, const Attributes& a) {
    GroupedMatMulBase::bind(d, inputs, a);
    conversion_of(a, name);
    const Shape &x = shape_of_input(inputs, "x"), &w = shape_of_input(inputs, "w");
    if (x.size() == 2 && w.size() == 3)  // else the shapes are refused right after
      d.set("Y", reshaped({x[0], w[a.flag("transpose_weight") ? 1 : 2]}, a.integers("shape"), name));
  }

  template <class T>
  static void forward(Tensors<T>& t, const Dims& d, const Attributes& a) {
    GroupedMatMulBase::forward(t, d, a);
    const Conversion convert = conversion_of(a, name);
    for (T& y : t.slot("y").values) y = convert(y);
  }
};

}  // namespace

namespace ops {
extern constexpr Operator grouped_matmul_reshape_cast = describe<GroupedMatMulReshapeCast>();
}

}  // namespace assay
