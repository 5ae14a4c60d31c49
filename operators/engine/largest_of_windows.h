#pragma once

#include <cstdint>
#include <vector>

#include "assay/golden/parallel.h"
#include "assay/operators/engine/order.h"
#include "assay/operators/engine/pool.h"

/// y = the largest element that a window sees, index = where it is first: x is "A*,S*", y and index "A*,O*".
namespace assay {

using SeenByWindows = std::vector<std::vector<std::int64_t>>;

template <class T>
std::int64_t largest_seen(const View<T>& x, std::int64_t a, const std::vector<std::int64_t>& seen) {
  const auto at = [&](std::int64_t i) { return seen[static_cast<std::size_t>(i)]; };
  return at(
      extreme_position(std::ssize(seen), false, [&](std::int64_t i) -> const T& { return x(a, at(i)); }));
}

template <class T>
void largest_of_windows(Tensors<T>& t, const Dims& d, const SeenByWindows& seen) {
  const auto x = t["x"], y = t["y"];
  const auto index = t.output_index("index");
  each_in_parallel(d.at("A"), grain_of(4 * d.at("S")), [&](std::int64_t a) {
    for (std::size_t k = 0; k < seen.size(); ++k) {
      const auto o = static_cast<std::int64_t>(k);
      index(a, o) = largest_seen(x, a, seen[k]);
      y(a, o) = x(a, index(a, o));
    }
  });
}

template <class T>
void gradient_of_largest(Tensors<T>& t, const Dims& d, const SeenByWindows& seen) {
  const auto x = t["x"], g = t["grad_y"], grad_x = t["grad_x"];
  each_in_parallel(d.at("A"), grain_of(16 * d.at("S")), [&](std::int64_t a) {
    Collected<T> collected(d.at("S"));
    for (std::size_t o = 0; o < seen.size(); ++o)
      collected.add(largest_seen(x, a, seen[o]), g(a, static_cast<std::int64_t>(o)));
    for (std::int64_t s = 0; s < d.at("S"); ++s) grad_x(a, s) = collected.total(s);
  });
}

}  // namespace assay
