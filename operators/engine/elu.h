#pragma once

#include "assay/operators/engine/piecewise.h"
#include "assay/operators/engine/unary.h"

/// Exponential linear units: y = positive x where x > 0, else negative (exp(steep x) - 1).
namespace assay {

template <class T>
struct Elu {
  T positive, negative, steep;

  T operator()(const T& x) const {
    return by_side<T>(
        x, [&] { return positive * x; }, [&] { return negative * expm1(steep * x); });
  }

  /// Kernels that have kept y add to it what was subtracted.
  T gradient(const T& x, const T& g) const {
    if (x > T(0)) return positive * g;
    const T factor = negative * steep;
    return without_cancellation<T>(
        [&] { return g * (factor * exp(steep * x)); },
        [&] { return g * (steep * (stored(negative * expm1(steep * x)) + negative)); });
  }
};

template <class T>
void elu_forward(Tensors<T>& t, const Dims& d, const Elu<T>& elu) {
  map_forward(t, d, elu);
}
template <class T>
void elu_backward(Tensors<T>& t, const Dims& d, const Elu<T>& elu) {
  map_gradient(t, d, [&](const T& x, const T& g) { return elu.gradient(x, g); });
}

}  // namespace assay
