#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <numeric>
#include <set>
#include <vector>

#include "assay/golden/error.h"
#include "assay/operators/engine/operator.h"

/// What comes first, for operators that choose: NaN is larger than every number, as in torch.sort and
/// torch.topk; of equal elements the lower index comes first.
namespace assay {

/// Whether a stands before an equal or later b in sorted order.
template <class T>
bool stands_before(const T& a, const T& b, bool descending) {
  if (isnan(a) || isnan(b)) return isnan(descending ? a : b) && !isnan(descending ? b : a);
  return descending ? b < a : a < b;
}

/// The positions 0 .. n-1 in the order of value(i).
template <class F>
std::vector<std::int64_t> sorted_positions(std::int64_t n, bool descending, F value) {
  std::vector<std::int64_t> order(static_cast<std::size_t>(n));
  std::iota(order.begin(), order.end(), std::int64_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::int64_t i, std::int64_t k) {
    return stands_before(value(i), value(k), descending);
  });
  return order;
}

/// The position of the largest (smallest) value(i), i < n, the first of equals; a NaN wins either way
/// (torch.max, torch.min). n > 0.
template <class F>
std::int64_t extreme_position(std::int64_t n, bool smallest, F value) {
  std::int64_t best = 0;
  for (std::int64_t i = 1; i < n && !isnan(value(best)); ++i) {
    if (isnan(value(i)) || (smallest ? value(i) < value(best) : value(best) < value(i))) best = i;
  }
  return best;
}

/// The first K along the extent C of x(a, c, b) in sorted order, and their positions: y and index(a, k, b);
/// or those that are given, none of them twice.
template <class T>
void order_forward(Tensors<T>& t, const Dims& d, bool descending) {
  const auto x = t["x"], y = t["y"];
  const auto index = t.output_index("index");
  const auto chosen = t.optional_index("chosen");
  const std::int64_t A = d.at("A"), C = d.at("C"), B = d.at("B"), K = d.at("K");
  for (std::int64_t a = 0; a < A; ++a) {
    for (std::int64_t b = 0; b < B; ++b) {
      std::set<std::int64_t> taken;
      for (std::int64_t k = 0; chosen && k < K; ++k) {
        if (!taken.insert(chosen(a, k, b)).second)
          throw Error("chosen: element {} is there twice; expected each once", chosen(a, k, b));
        index(a, k, b) = chosen(a, k, b);
        y(a, k, b) = x(a, index(a, k, b), b);
      }
      if (chosen) continue;
      const auto order =
          sorted_positions(C, descending, [&](std::int64_t c) -> const T& { return x(a, c, b); });
      for (std::int64_t k = 0; k < K; ++k) {
        index(a, k, b) = order[static_cast<std::size_t>(k)];
        y(a, k, b) = x(a, index(a, k, b), b);
      }
    }
  }
}

/// Every gradient goes back to where its element was; 0 to the others.
template <class T>
void order_backward(Tensors<T>& t, const Dims& d) {
  const auto g = t["grad_y"], grad_x = t["grad_x"];
  const auto index = t.output_index("index");
  const std::int64_t A = d.at("A"), B = d.at("B"), K = d.at("K");
  for (std::int64_t a = 0; a < A; ++a) {
    for (std::int64_t k = 0; k < K; ++k) {
      for (std::int64_t b = 0; b < B; ++b) grad_x(a, index(a, k, b), b) = g(a, k, b);
    }
  }
}

}  // namespace assay
