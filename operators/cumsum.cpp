#include "assay/operators/engine/axes.h"
#include "assay/operators/engine/operator.h"

namespace assay {
namespace {

// C*: the one extent of `dim`, none for a scalar; A* before it, B* behind.
struct CumSum {
  static constexpr std::string_view name = "cumsum";
  static constexpr std::string_view math = "y_i = x_0 + .. + x_i along dim";
  static constexpr std::string_view source = "Higham 2002, ch. 4";
  static constexpr std::string_view aliases[] = {"torch.cumsum", "CumSum", "ops.cumsum"};
  static constexpr Attribute attributes[] = {{"dim", "-1", "the dimension that is summed along"},
                                             {"exclusive", "false", "y_i leaves x_i out (ONNX)"},
                                             {"reverse", "false", "start at the end (ONNX)"}};
  static constexpr Arg args[] = {
      {"x", "A*,C*,B*", Role::input},
      {"grad_y", "A*,C*,B*", Role::grad_output},
      {.name = "y", .shape = "A*,C*,B*", .role = Role::output, .terms = "C"},
      {.name = "grad_x", .shape = "A*,C*,B*", .role = Role::grad_input, .terms = "C"},
  };
  static constexpr Example examples[] = {
      {"A=3,C=11,B="}, {"A=2,C=7,B=3", "dim=1,exclusive=true"}, {"A=,C=9,B=2x2", "dim=0,reverse=true"}};
  static constexpr ExactFill exact_fill = ExactFill::small_integers;

  static void bind(Dims& d, InputShapes inputs, const Attributes& a) {
    bind_axis(d, shape_of_input(inputs, "x"), a.integer("dim"));
  }

  // In Bound every y is a sum of its own, in any order: C^2 / 2 terms.
  template <class T>
  static void scan(const Dims& d, View<T> from, View<T> to, bool exclusive, bool reverse) {
    const std::int64_t A = d.at("A"), C = d.at("C"), B = d.at("B");
    for (std::int64_t a = 0; a < A; ++a) {
      for (std::int64_t b = 0; b < B; ++b) {
        const auto at = [&](std::int64_t i) { return reverse ? C - 1 - i : i; };
        const auto x = [&](std::int64_t i) { return from(a, at(i), b); };
        T total = T(0);
        for (std::int64_t i = 0; i < C; ++i) {
          const T before = total;
          if constexpr (std::is_same_v<T, Bound>)
            total = sum<T>(i + 1, x);
          else
            total += x(i);
          to(a, at(i), b) = exclusive ? before : total;
        }
      }
    }
  }

  template <class T>
  static void forward(Tensors<T>& t, const Dims& d, const Attributes& a) {
    scan(d, t["x"], t["y"], a.flag("exclusive"), a.flag("reverse"));
  }
  template <class T>
  static void backward(Tensors<T>& t, const Dims& d, const Attributes& a) {
    scan(d, t["grad_y"], t["grad_x"], a.flag("exclusive"), !a.flag("reverse"));
  }
};

}  // namespace

namespace ops {
extern constexpr Operator cumsum = describe<CumSum>();
}

}  // namespace assay
