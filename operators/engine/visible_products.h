#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <type_traits>
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

/// y(s, c) = sum of weight b(r, c) over the rows r that give key s a weight, for c < C: rows come in blocks.
template <class T>
class SumsOfKeys {
 public:
  using Lists = std::vector<std::vector<Weighted<T>>>;
  /// @param b  dense, `rows` of C: of all blocks
  SumsOfKeys(std::int64_t S, std::int64_t C, const T* b, std::int64_t rows) : C_(C), b_(b) {
    // As in weighted_sums: weights that are no numbers stay with their keys.
    bool by_parts = false;
    if constexpr (std::is_same_v<T, Bound>) {
      by_parts =
          as_matrices<T>() && std::all_of(b, b + rows * C, [](const T& x) { return !isnan(x) && !isinf(x); });
      if (by_parts) sums_.emplace(S, C);
    }
    by_parts ? terms_.resize(static_cast<std::size_t>(S), 0) : lists_.resize(static_cast<std::size_t>(S));
  }
  /// @param rows  of the rows from `first` on: the weights of keys from first_key on, before end_key
  void add(std::int64_t first, const Lists& rows, std::int64_t first_key, std::int64_t end_key) {
    const auto count = static_cast<std::int64_t>(rows.size()), keys = end_key - first_key;
    std::vector<T> dense(static_cast<std::size_t>(sums_ ? count * keys : 0), T(0));
    for (std::int64_t i = 0; i < count; ++i) {
      for (const Weighted<T>& w : rows[static_cast<std::size_t>(i)]) {
        const auto key = static_cast<std::size_t>(first_key + w.k);
        if (!sums_) {
          lists_[key].push_back({first + i, w.weight});
          continue;
        }
        dense[static_cast<std::size_t>(i * keys + w.k)] = w.weight;
        ++terms_[key];
      }
    }
    if constexpr (std::is_same_v<T, Bound>) {
      if (sums_)
        sums_->add(first_key, {keys, C_, count, {dense.data(), 1, keys}, {b_ + first * C_, C_, 1}, {}});
    }
  }
  /// Whether the lists are what there is.
  bool has_lists() const { return !sums_; }
  const Lists& lists() const { return lists_; }
  void put(T* y) const {
    if constexpr (std::is_same_v<T, Bound>) {
      for (std::size_t s = 0; s < terms_.size(); ++s, y += C_)
        sums_->row(static_cast<std::int64_t>(s), terms_[s], y);
    }
  }

 private:
  std::int64_t C_;
  const T* b_;
  Lists lists_;                      // by key
  std::optional<QuickSums> sums_;    // instead
  std::vector<std::int64_t> terms_;  // of each key
};

}  // namespace assay
