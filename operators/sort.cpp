#include "assay/operators/engine/axes.h"
#include "assay/operators/engine/order.h"

namespace assay {
namespace {

// C*: the one extent of `dim`, none for a scalar; A* before it, B* behind.
struct Sort {
  static constexpr std::string_view name = "sort";
  static constexpr std::string_view math = "y = x in order along dim, index = where its elements were";
  static constexpr std::string_view source = "torch.sort; NaN is the largest";
  static constexpr std::string_view aliases[] = {"torch.sort", "npu_sort_v2", "Sort", "ops.sort"};
  static constexpr Attribute attributes[] = {
      {"dim", "-1", "the dimension that is sorted"},
      {"descending", "false", "largest first"},
      {"stable", "false", "equal elements keep their order; golden's do all the same"}};
  static constexpr Arg args[] = {
      {.name = "x", .shape = "A*,C*,B*", .role = Role::input, .domain = everywhere},
      {"grad_y", "A*,C*,B*", Role::grad_output},
      {.name = "y", .shape = "A*,C*,B*", .role = Role::output, .exact = Exact::value},
      {"index", "A*,C*,B*", Role::output_index},
      {.name = "grad_x", .shape = "A*,C*,B*", .role = Role::grad_input, .exact = Exact::bits},
  };
  static constexpr Example examples[] = {
      {"A=3,C=7,B="}, {"A=2,C=5,B=3", "dim=1,descending=true"}, {"A=,C=4,B=2x3", "dim=0,stable=true"}};
  static constexpr ExactFill exact_fill = ExactFill::small_integers;

  static void bind(Dims& d, InputShapes inputs, const Attributes& a) {
    bind_axis(d, shape_of_input(inputs, "x"), a.integer("dim"));
    d.set("K", d.extents("C"));
  }

  template <class T>
  static void forward(Tensors<T>& t, const Dims& d, const Attributes& a) {
    order_forward(t, d, a.flag("descending"));
  }
  template <class T>
  static void backward(Tensors<T>& t, const Dims& d, const Attributes&) {
    order_backward(t, d);
  }
};

}  // namespace

namespace ops {
extern constexpr Operator sort = describe<Sort>();
}

}  // namespace assay
