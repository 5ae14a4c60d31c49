#include "assay/operators/reduce.h"

namespace assay {
namespace {

struct ReduceL2 {
  static constexpr std::string_view name = "reduce_l2";
  static constexpr std::string_view math = "y = sqrt(sum of x^2 over dims)";
  static constexpr std::string_view source = "Higham 2002, sec. 6.1";
  static constexpr std::string_view aliases[] = {"ReduceL2"};
  static constexpr Attribute attributes[] = {{"dims", "null", "the dimensions of the norm; null or []: all"},
                                             {"keepdim", "false", "keep them with extent 1"}};
  // Squares must neither overflow nor underflow.
  static constexpr Domain squares{.low = -0x1p63, .high = 0x1p63, .least = 0x1p-63};
  static constexpr Arg args[] = {
      {.name = "x", .shape = "S*", .role = Role::input, .domain = squares},
      {"grad_y", "R*", Role::grad_output},
      {.name = "y", .shape = "R*", .role = Role::output, .terms = "reduced"},
      {.name = "grad_x", .shape = "S*", .role = Role::grad_input, .terms = "reduced"},
  };
  static constexpr Example examples[] = {
      {"S=3x2x7"}, {"S=5x11", "dims=[1]"}, {"S=2x3x4x2", "dims=[-1,1],keepdim=true"}};

  static void bind(Dims& d, InputShapes inputs, const Attributes& a) {
    bind_reduction(d, shape_of_input(inputs, "x"), a, "dims");
  }
  template <class T>
  static void forward(Tensors<T>& t, const Dims& d, const Attributes& a) {
    reduce_forward(t, d, a, [](const T& x) { return x * x; });
    for (T& y : t.slot("y").values) y = sqrt(y);
  }
  // g x / y; 0 where all x are, as PyTorch.
  template <class T>
  static void backward(Tensors<T>& t, const Dims& d, const Attributes& a) {
    reduce_backward(t, d, a,
                    [](const T& x, const T& y, const T& g) { return y == T(0) ? T(0) : g * (x / y); });
  }
};

}  // namespace

namespace ops {
extern constexpr Operator reduce_l2 = describe<ReduceL2>();
}

}  // namespace assay
