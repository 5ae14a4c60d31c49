#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "assay/golden/exact_sum.h"
#include "assay/operators/engine/operator.h"

/// Collectives over a stacked input x[R, ..]: what rank r holds is x[r]. A result that every rank has is
/// given once; one that differs is stacked too. Their gradients are collectives of their own: of all_reduce
/// all_reduce, of all_gather reduce_scatter and the reverse, of all_to_all all_to_all.
namespace assay {

inline constexpr Attribute reduce_attribute = {"reduce", "\"sum\"", "sum, avg, prod, max or min"};
inline constexpr Attribute order_attribute = {
    "order", "null",
    "of the additions. null: any, bounded for all; rank: 0, 1, ..; ring: chunk r (of R equal ones) starts at "
    "rank r + 1; tree: neighbours, then neighbours of those; exact: no rounding but of the result"};

/// The shape of what one rank holds. Throws Error if there is no rank.
Shape shape_per_rank(std::string_view op, const Shape& x);

/// Checks `reduce` and `order` and sets "chain", the longest chain of operations behind one element.
/// @param ranks  R
void bind_rank_reduction(Dims&, std::string_view op, std::int64_t ranks, const Attributes&);

/// value(r) over all ranks, rounded once; in Bound with that rounding.
template <class T, class F>
T exact_sum(std::int64_t n, F value) {
  if constexpr (std::is_same_v<T, Truth>) {
    return sum<T>(n, value);
  } else {
    ExactSum exact;
    for (std::int64_t i = 0; i < n; ++i) exact.add(static_cast<double>(value(i)));
    const double total = exact.round(std::is_same_v<T, float> ? DType::float32 : DType::float64);
    if constexpr (std::is_same_v<T, Bound>) {
      double inherited = 0;
      for (std::int64_t i = 0; i < n; ++i) inherited += value(i).error;
      const double rounding = ErrorScope::current().unit_roundoff * (std::abs(total) + inherited);
      return settled(total, std::isfinite(total) ? inherited + rounding : inherited);
    } else {
      return static_cast<T>(total);
    }
  }
}

/// Reduces over the ranks, by the attributes `reduce` and `order`.
class RankReduction {
 public:
  RankReduction(const Attributes& a, std::int64_t ranks)
      : ranks_(ranks), kind_(a.text("reduce")), order_(a.has("order") ? a.text("order") : "any") {}

  /// @param chunk  which of R equal parts the element is in: where a ring starts
  /// @param value  value(r), what rank r holds
  template <class T, class F>
  T of(std::int64_t chunk, F value) const {
    const bool sums = kind_ == "sum" || kind_ == "avg";
    T total = T(0);
    if (sums && order_ == "any") {
      total = sum<T>(ranks_, value);
    } else if (sums && order_ == "exact") {
      total = exact_sum<T>(ranks_, value);
    } else if (order_ == "tree") {
      std::vector<T> level;
      for (std::int64_t r = 0; r < ranks_; ++r) level.push_back(value(r));
      while (level.size() > 1) {
        std::vector<T> next;
        for (std::size_t i = 0; i + 1 < level.size(); i += 2) next.push_back(combine(level[i], level[i + 1]));
        if (level.size() % 2 == 1) next.push_back(level.back());
        level = std::move(next);
      }
      total = level[0];
    } else {
      const std::int64_t start = order_ == "ring" ? chunk + 1 : 0;
      total = value(start % ranks_);
      for (std::int64_t i = 1; i < ranks_; ++i) total = combine(total, value((start + i) % ranks_));
    }
    return kind_ == "avg" ? total / number<T>(ranks_) : total;
  }

 private:
  template <class T>
  T combine(const T& a, const T& b) const {
    if (kind_ == "max") return maximum(a, b);
    if (kind_ == "min") return -maximum<T>(-a, -b);
    return kind_ == "prod" ? a * b : a + b;
  }
  std::int64_t ranks_;
  std::string kind_, order_;
};

}  // namespace assay
