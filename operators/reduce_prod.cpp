#include "assay/operators/axes.h"
#include "assay/operators/operator.h"

namespace assay {
namespace {

// C*: the extents of `dim`, or all of them; A* before, B* behind; P*, Q*: what is left of all.
struct ReduceProd {
  static constexpr std::string_view name = "reduce_prod";
  static constexpr std::string_view math = "y = product of x over dim";
  static constexpr std::string_view source = "Higham 2002, sec. 3.1";
  static constexpr std::string_view aliases[] = {"torch.prod", "prod", "ReduceProd", "ops.prod"};
  static constexpr Attribute attributes[] = {{"dim", "null", "the dimension that is multiplied; null: all"},
                                             {"keepdim", "false", "keep it with extent 1"}};
  static constexpr Arg args[] = {
      {"x", "A*,C*,B*", Role::input},
      {"grad_y", "A*,R*,B*", Role::grad_output},
      {.name = "y", .shape = "A*,R*,B*", .role = Role::output, .terms = "C"},
      {.name = "grad_x", .shape = "A*,C*,B*", .role = Role::grad_input, .terms = "C"},
  };
  static constexpr Example examples[] = {
      {"A=6,C=9,B=", "dim=1"}, {"A=2,C=5,B=3", "dim=-2,keepdim=true"}, {"A=,C=2x4,B="}};
  static constexpr ExactFill exact_fill = ExactFill::powers_of_two;

  static void bind(Dims& d, InputShapes inputs, const Attributes& attr) {
    const Shape& x = shape_of_input(inputs, "x");
    auto first = x.begin(), last = x.end();
    if (attr.has("dim") && !x.empty()) {
      first += static_cast<std::ptrdiff_t>(axis(attr.integer("dim"), x.size()));
      last = first + 1;
    } else if (attr.has("dim")) {
      axis(attr.integer("dim"), 0);
    }
    d.set("A", Shape(x.begin(), first));
    d.set("C", Shape(first, last));
    d.set("B", Shape(last, x.end()));
    d.set("R", Shape(attr.flag("keepdim") ? static_cast<std::size_t>(last - first) : 0, 1));
  }

  template <class T>
  static void forward(Tensors<T>& t, const Dims& d, const Attributes&) {
    const auto x = t["x"], y = t["y"];
    const std::int64_t A = d.at("A"), C = d.at("C"), B = d.at("B");
    for (std::int64_t a = 0; a < A; ++a) {
      for (std::int64_t b = 0; b < B; ++b) {
        T product = T(1);
        for (std::int64_t c = 0; c < C; ++c) product *= x(a, c, b);
        y(a, 0, b) = product;
      }
    }
  }

  // g times the product of the others, as prefix times suffix: y / x would fail at a zero.
  template <class T>
  static void backward(Tensors<T>& t, const Dims& d, const Attributes&) {
    const auto x = t["x"], g = t["grad_y"], grad_x = t["grad_x"];
    const std::int64_t A = d.at("A"), C = d.at("C"), B = d.at("B");
    for (std::int64_t a = 0; a < A; ++a) {
      for (std::int64_t b = 0; b < B; ++b) {
        T prefix = T(1), suffix = T(1);
        for (std::int64_t c = 0; c < C; ++c) {
          grad_x(a, c, b) = prefix;
          prefix *= x(a, c, b);
        }
        for (std::int64_t c = C - 1; c >= 0; --c) {
          grad_x(a, c, b) *= suffix * g(a, 0, b);
          suffix *= x(a, c, b);
        }
      }
    }
  }
};

}  // namespace

namespace ops {
extern constexpr Operator reduce_prod = describe<ReduceProd>();
}

}  // namespace assay
