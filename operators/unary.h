#pragma once

#include "assay/operators/operator.h"

/// The two loops of an operator that works element by element: x and y of shape "N*".
namespace assay {

template <class T, class F>
void map_forward(Tensors<T>& t, const Dims& d, F f) {
  const auto x = t["x"], y = t["y"];
  const std::int64_t N = d.at("N");
  for (std::int64_t n = 0; n < N; ++n) y(n) = f(x(n));
}

/// grad_x = grad_y f'(x)
template <class T, class F>
void map_backward(Tensors<T>& t, const Dims& d, F slope) {
  const auto x = t["x"], g = t["grad_y"], grad_x = t["grad_x"];
  const std::int64_t N = d.at("N");
  for (std::int64_t n = 0; n < N; ++n) grad_x(n) = g(n) * slope(x(n));
}

}  // namespace assay
