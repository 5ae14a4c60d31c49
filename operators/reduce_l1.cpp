#include "assay/operators/engine/reduce.h"

namespace assay {
namespace {

struct ReduceL1 {
  static constexpr std::string_view name = "reduce_l1";
  static constexpr std::string_view math = "y = sum of |x| over dims";
  static constexpr std::string_view source = "Higham 2002, sec. 6.1";
  static constexpr std::string_view aliases[] = {"ReduceL1"};
  static constexpr Attribute attributes[] = {{"dims", "null", "the dimensions of the norm; null or []: all"},
                                             {"keepdim", "false", "keep them with extent 1"}};
  static constexpr Arg args[] = {
      {"x", "S*", Role::input},
      {"grad_y", "R*", Role::grad_output},
      {.name = "y", .shape = "R*", .role = Role::output, .terms = "reduced"},
      {.name = "grad_x", .shape = "S*", .role = Role::grad_input, .exact = Exact::value},
  };
  static constexpr Example examples[] = {
      {"S=3x5x7"}, {"S=5x11", "dims=[1]"}, {"S=2x3x4x2", "dims=[-1,1],keepdim=true"}};
  static constexpr ExactFill exact_fill = ExactFill::small_integers;

  static void bind(Dims& d, InputShapes inputs, const Attributes& a) {
    bind_reduction(d, shape_of_input(inputs, "x"), a, "dims");
  }
  template <class T>
  static void forward(Tensors<T>& t, const Dims& d, const Attributes& a) {
    reduce_forward(t, d, a, [](const T& x) { return abs(x); });
  }
  // g sign(x). At x = 0 the subgradient 0, as PyTorch; NaN where x is, or g there is not finite.
  template <class T>
  static void backward(Tensors<T>& t, const Dims& d, const Attributes& a) {
    reduce_backward(t, d, a, [](const T& x, const T&, const T& g) {
      if (x > T(0)) return g;
      if (x < T(0)) return -g;
      return g - g + x;
    });
  }
};

}  // namespace

namespace ops {
extern constexpr Operator reduce_l1 = describe<ReduceL1>();
}

}  // namespace assay
