#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "assay/operators/engine/products.h"

/// Products of matrices whose pairs are not all wanted: attention's queries and keys. Where as_matrices(),
/// they are computed as a whole: the values have the bits of the plain loops.
namespace assay {

/// The dot products of M rows of a with N rows of b, K wide each.
template <class T>
class DotProducts {
 public:
  DotProducts(const T* a, std::int64_t M, const T* b, std::int64_t N, std::int64_t K)
      : a_(a), b_(b), N_(N), K_(K) {
    if (!as_matrices<T>()) return;
    y_.resize(static_cast<std::size_t>(M * N));
    products<T>({M, N, K, {a, K, 1}, {b, 1, K}, {y_.data(), N, 1}});
  }
  T operator()(std::int64_t m, std::int64_t n) const {
    if (!y_.empty()) return y_[static_cast<std::size_t>(m * N_ + n)];
    return sum<T>(K_, [&](auto k) { return a_[m * K_ + k] * b_[n * K_ + k]; });
  }

 private:
  const T *a_, *b_;
  std::int64_t N_, K_;
  std::vector<T> y_;
};

/// Row k of b with its weight in a sum.
template <class T>
struct Weighted {
  std::int64_t k;
  T weight;
};

/// y(m, c) = sum of weight b(k, c) over list m, whose k ascend and are below K, for c < C; dense y and b.
/// @param sum_of  (list, c): the sum as the operator has it
template <class T, class F>
void weighted_sums(const std::vector<std::vector<Weighted<T>>>& lists, const T* b, std::int64_t K,
                   std::int64_t C, T* y, F sum_of) {
  const auto is_finite = [](const T& x) { return !isnan(x) && !isinf(x); };
  const auto M = static_cast<std::int64_t>(lists.size());
  // A zero where there is no weight adds nothing, unless it meets an infinity or a NaN.
  const bool at_once =
      as_matrices<T>() && K > 0 && std::all_of(b, b + K * C, is_finite) &&
      std::ranges::all_of(lists, [&](const auto& list) {
        return std::ranges::all_of(list, [&](const Weighted<T>& w) { return is_finite(w.weight); });
      });
  if (!at_once) {
    for (std::int64_t m = 0; m < M; ++m) {
      for (std::int64_t c = 0; c < C; ++c) y[m * C + c] = sum_of(lists[static_cast<std::size_t>(m)], c);
    }
    return;
  }
  std::vector<T> dense(static_cast<std::size_t>(M * K), T(0));
  std::vector<std::int64_t> terms;
  for (std::size_t m = 0; m < lists.size(); ++m) {
    for (const Weighted<T>& w : lists[m])
      dense[m * static_cast<std::size_t>(K) + static_cast<std::size_t>(w.k)] = w.weight;
    terms.push_back(static_cast<std::int64_t>(lists[m].size()));
  }
  products<T>({M, C, K, {dense.data(), K, 1}, {b, C, 1}, {y, C, 1}}, terms);
}

}  // namespace assay
