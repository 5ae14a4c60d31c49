#pragma once

#include "assay/golden/arithmetic.h"

/// c tanh(x / c), by which models keep scores and logits below c (arXiv:2408.00118 sec. 2).
namespace assay {

/// @param store  what a step does to its result: stored, or nothing
template <class T, class Store>
T softcapped(const T& x, const T& c, Store store) {
  return store(c * store(tanh(store(x / c))));
}

/// Its slope, 1 - tanh^2(x / c): nothing cancels where tanh is near 1.
template <class T, class Store>
T slope_of_softcap(const T& x, const T& c, Store store) {
  const T e = exp(-abs(x / c) * T(2));
  return without_cancellation<T>([&] { return T(4) * e / ((T(1) + e) * (T(1) + e)); },
                                 [&] {
                                   const T t = store(tanh(store(x / c)));
                                   return T(1) - t * t;
                                 });
}

}  // namespace assay
