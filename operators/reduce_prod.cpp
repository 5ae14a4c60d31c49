#include "assay/operators/engine/reduce.h"

namespace assay {
namespace {

struct ReduceProd {
  static constexpr std::string_view name = "reduce_prod";
  static constexpr std::string_view math = "y = product of x over dim";
  static constexpr std::string_view source = "Higham 2002, sec. 3.1";
  static constexpr std::string_view aliases[] = {"torch.prod", "prod", "ReduceProd", "ops.prod"};
  static constexpr Attribute attributes[] = {{"dim", "null", "the dimension that is multiplied; null: all"},
                                             {"keepdim", "false", "keep it with extent 1"}};
  // The usual backward divides the product by x: three factors at either end still make a normal float32.
  static constexpr Domain domain = {.low = -0x1p42, .high = 0x1p42, .least = 0x1p-42};
  static constexpr Arg args[] = {
      {.name = "x", .shape = "S*", .role = Role::input, .domain = domain},
      {"grad_y", "R*", Role::grad_output},
      {.name = "y", .shape = "R*", .role = Role::output, .terms = "reduced"},
      {.name = "grad_x", .shape = "S*", .role = Role::grad_input, .terms = "reduced"},
  };
  static constexpr Example examples[] = {{"S=6x9", "dim=1"}, {"S=2x5x3", "dim=-2,keepdim=true"}, {"S=2x4"}};
  static constexpr ExactFill exact_fill = ExactFill::powers_of_two;

  static void bind(Dims& d, InputShapes inputs, const Attributes& a) {
    bind_reduction_over_one(d, shape_of_input(inputs, "x"), a);
  }

  template <class T>
  static void forward(Tensors<T>& t, const Dims& d, const Attributes& a) {
    const auto x = t["x"], y = t["y"];
    const Groups groups(d.extents("S"), a, "dim");
    for (std::int64_t r = 0; r < groups.count(); ++r) {
      y(r) = T(1);
      for (std::int64_t i = 0; i < groups.size(); ++i) y(r) *= x(groups(r, i));
    }
  }

  // g times the product of the others, as prefix times suffix: y / x would fail at a zero.
  template <class T>
  static void backward(Tensors<T>& t, const Dims& d, const Attributes& a) {
    const auto x = t["x"], g = t["grad_y"], grad_x = t["grad_x"];
    const Groups groups(d.extents("S"), a, "dim");
    for (std::int64_t r = 0; r < groups.count(); ++r) {
      T prefix = T(1), suffix = T(1);
      for (std::int64_t i = 0; i < groups.size(); ++i) {
        grad_x(groups(r, i)) = prefix;
        prefix *= x(groups(r, i));
      }
      for (std::int64_t i = groups.size() - 1; i >= 0; --i) {
        grad_x(groups(r, i)) *= suffix * g(r);
        suffix *= x(groups(r, i));
      }
    }
  }
};

}  // namespace

namespace ops {
extern constexpr Operator reduce_prod = describe<ReduceProd>();
}

}  // namespace assay
