#pragma once

#include "assay/operators/engine/binary.h"

/// The larger or the smaller of two, element by element, NaN if either is: maximum and minimum.
namespace assay {

template <bool larger>
struct LargerSmaller : Binary {
  static constexpr auto args =
      args_with({.name = "a", .shape = "A*", .role = Role::input, .domain = everywhere},
                {.name = "b", .shape = "B*", .role = Role::input, .domain = everywhere}, Exact::value);
  static constexpr Example examples[] = {{"A=3x4,B="}, {"A=2x1x3,B=5x1"}, {"A=4,B=2x4"}};
  static constexpr ExactFill exact_fill = ExactFill::small_integers;

  template <class T>
  static void forward(Tensors<T>& t, const Dims& d, const Attributes&) {
    map(t, d, [](const T& a, const T& b) { return larger ? maximum<T>(a, b) : minimum<T>(a, b); });
  }

  // To the one that is taken; halves to both of a tie. As in torch, both get all of it beside a NaN.
  template <class T>
  static T share(const T& own, const T& other, const T& g) {
    if (own == other) return T(.5) * g;
    return (larger ? own < other : own > other) ? T(0) : g;
  }
  template <class T>
  static void backward(Tensors<T>& t, const Dims& d, const Attributes&) {
    map_gradients(
        t, d, [](const T& a, const T& b, const T& g) { return share<T>(a, b, g); },
        [](const T& a, const T& b, const T& g) { return share<T>(b, a, g); });
  }
};

}  // namespace assay
