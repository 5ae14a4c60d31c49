#pragma once

#include <span>
#include <vector>

#include "assay/operators/engine/copy.h"

/// Sums of products over named indices: the core of einsum. A contraction and the
/// gradients of its factors are the same operation.
namespace assay {

/// How a tensor depends on the indices of a contraction.
struct Indexing {
  Shape stride;           ///< per index: how far apart its neighbours are; 0 where it has none
  std::vector<bool> has;  ///< per index: whether it has one; a tensor that is broadcast has not
};

template <class T>
struct Factor {
  const T* x;
  Indexing at;
};

/// y = product of the factors, summed over the indices that y does not have. What of y the indices do not
/// reach (off a diagonal) is left as it is.
/// @param extents  of every index
template <class T>
void contract(const Shape& extents, std::span<const Factor<T>> factors, const Indexing& result, T* y) {
  Shape outer = extents, inner = extents;
  for (std::size_t i = 0; i < extents.size(); ++i) (result.has[i] ? inner : outer)[i] = 1;
  const auto along = [](const Shape& stride) {
    return [&stride](std::size_t d, std::int64_t i) { return i * stride[d]; };
  };
  const Positions to = positions_of(outer, along(result.stride));
  std::vector<Positions> base, step;
  for (const Factor<T>& factor : factors) {
    base.push_back(positions_of(outer, along(factor.at.stride)));
    step.push_back(positions_of(inner, along(factor.at.stride)));
  }
  const std::int64_t terms = element_count(inner);
  for (std::size_t p = 0; p < to.size(); ++p) {
    y[to[p]] = sum<T>(terms, [&](std::int64_t k) {
      const auto element = [&](std::size_t f) -> const T& {
        return factors[f].x[base[f][p] + step[f][static_cast<std::size_t>(k)]];
      };
      T product = element(0);
      for (std::size_t f = 1; f < factors.size(); ++f) product *= element(f);
      return product;
    });
  }
}

}  // namespace assay
