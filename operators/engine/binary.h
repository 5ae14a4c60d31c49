#pragma once

#include <array>

#include "assay/golden/parallel.h"
#include "assay/operators/engine/axes.h"
#include "assay/operators/engine/broadcast.h"

/// What the operators of two tensors share: y = f(a, b) element by element, a and b broadcast.
namespace assay {

struct Binary {
  static constexpr Operand operand_a = {"a", "A"}, operand_b = {"b", "B"};

  /// @param a, b  where their fill or domain is not the default
  static constexpr std::array<Arg, 6> args_with(Arg a = {"a", "A*", Role::input},
                                                Arg b = {"b", "B*", Role::input}, Exact y = Exact::no) {
    return {
        {a,
         b,
         {"grad_y", "Y*", Role::grad_output},
         {.name = "y", .shape = "Y*", .role = Role::output, .terms = y == Exact::no ? "1" : "", .exact = y},
         {.name = "grad_a", .shape = "A*", .role = Role::grad_input, .terms = "copies_A"},
         {.name = "grad_b", .shape = "B*", .role = Role::grad_input, .terms = "copies_B"}}};
  }

  static void bind(Dims& d, InputShapes inputs, const Attributes&) {
    bind_broadcast(d, inputs, {operand_a, operand_b});
  }
  static Shape dims_in_result(const Shape& x, const Shape& y, const Attributes&) {
    return broadcast_dims(x, y);
  }

  /// y = f(a, b)
  template <class T, class F>
  static void map(Tensors<T>& t, const Dims& d, F f) {
    const Broadcast<T> a(t, d, operand_a), b(t, d, operand_b);
    const std::int64_t Y = d.at("Y");
    T* y = t["y"].data();
    each_in_parallel(Y, grain_of(4), [&](std::int64_t i) { y[i] = f(a(i), b(i)); });
  }

  /// What one element of y gives to its a: of_a(a, b, g), and to its b: of_b(a, b, g).
  template <Slope kind = Slope::computed, class T, class F, class G>
  static void map_gradients(Tensors<T>& t, const Dims& d, F of_a, G of_b) {
    const Broadcast<T> a(t, d, operand_a), b(t, d, operand_b);
    const T* g = t["grad_y"].data();
    collect_gradient<kind>(t, d, operand_a, [&](auto i) { return of_a(a(i), b(i), g[i]); });
    collect_gradient<kind>(t, d, operand_b, [&](auto i) { return of_b(a(i), b(i), g[i]); });
  }
};

}  // namespace assay
