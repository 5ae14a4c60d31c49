#include "assay/golden/parallel.h"
#include "assay/golden/running_sum.h"
#include "assay/operators/engine/axes.h"
#include "assay/operators/engine/operator.h"

namespace assay {
namespace {

template <class T>
class Total {
 public:
  T with(const T& term) { return total_ += term; }

 private:
  T total_ = T(0);
};
template <>
class Total<Bound> {
 public:
  Bound with(const Bound& term) {
    total_.add(term);
    return total_.value();
  }

 private:
  RunningSum total_{ErrorScope::current()};
};

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

  // In Bound every y is a sum of its own, in any order.
  template <class T>
  static void scan(const Dims& d, View<T> from, View<T> to, bool exclusive, bool reverse) {
    const std::int64_t A = d.at("A"), C = d.at("C"), B = d.at("B");
    each_in_parallel(A * B, grain_of(C), [&](std::int64_t line) {
      const std::int64_t a = line / B, b = line % B;
      Total<T> total;
      T sum = T(0);
      for (std::int64_t i = 0; i < C; ++i) {
        const std::int64_t at = reverse ? C - 1 - i : i;
        const T before = sum;
        sum = total.with(from(a, at, b));
        to(a, at, b) = exclusive ? before : sum;
      }
    });
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
