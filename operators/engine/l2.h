#pragma once

#include "assay/operators/engine/reduce.h"

/// The Euclidean norm over some axes, which PyTorch names `dim` and ONNX `dims`.
namespace assay {

template <class Op>
struct L2 {
  static constexpr std::string_view math = "y = sqrt(sum of x^2 over the dimensions)";
  // Squares must neither overflow nor underflow.
  static constexpr Domain squares{.low = -0x1p63, .high = 0x1p63, .least = 0x1p-63};
  static constexpr Arg args[] = {
      {.name = "x", .shape = "S*", .role = Role::input, .domain = squares},
      {"grad_y", "R*", Role::grad_output},
      {.name = "y", .shape = "R*", .role = Role::output, .terms = "reduced"},
      {.name = "grad_x", .shape = "S*", .role = Role::grad_input, .terms = "reduced"},
  };

  static void bind(Dims& d, InputShapes inputs, const Attributes& a) {
    bind_reduction(d, shape_of_input(inputs, "x"), a, Op::axes);
  }
  template <class T>
  static void forward(Tensors<T>& t, const Dims& d, const Attributes& a) {
    reduce_forward(
        t, d, a, [](const T& x) { return x * x; }, Op::axes);
    for (T& y : t.slot("y").values) y = sqrt(y);
  }
  // g x / y; 0 where all x are, as in torch.
  template <class T>
  static void backward(Tensors<T>& t, const Dims& d, const Attributes& a) {
    reduce_backward(
        t, d, a, [](const T& x, const T& y, const T& g) { return y == T(0) ? T(0) : g * (x / y); }, Op::axes);
  }
};

}  // namespace assay
