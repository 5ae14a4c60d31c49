#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "assay/operators/engine/order.h"

/// What routers and their losses share: scores of one token's experts, and which are the largest.
namespace assay {

/// Keeps the sum of scores that all underflow from being a divisor 0, as Megatron-LM and HF do.
inline constexpr double least_total = 1e-20;

/// exp(z_i - max z), and their sum.
template <class T>
struct Exponentials {
  template <class F>
  Exponentials(std::int64_t n, F z) {
    for (std::int64_t i = 0; i < n; ++i) largest = i == 0 ? z(i) : maximum<T>(largest, z(i));
    for (std::int64_t i = 0; i < n; ++i) e.push_back(exp(z(i) - largest));
    total = sum<T>(n, [&](auto i) { return (*this)[i]; });
  }
  const T& operator[](std::int64_t i) const { return e[static_cast<std::size_t>(i)]; }

  std::vector<T> e;
  T largest = T(0), total = T(0);
};

template <class T, class F>
std::vector<T> softmax_of(std::int64_t n, F z) {
  Exponentials<T> exponentials(n, z);
  for (T& e : exponentials.e) e /= exponentials.total;
  return std::move(exponentials.e);
}

/// Experts in n groups of neighbours, of which the best are kept by the sum of their `top` best experts.
struct GroupLimit {
  std::int64_t n = 1, kept = 1, top = 1;
};

/// The experts of the groups that are kept, ascending: of all without a limit.
/// @param given  a choice that was made elsewhere: its groups were kept
/// @param gap    then: how much the groups of the choice are ahead of the best that was not kept
template <class T>
std::vector<std::int64_t> kept_experts(const std::vector<T>& ranking, const std::optional<GroupLimit>& limit,
                                       const std::vector<std::int64_t>& given, T& gap) {
  const auto E = static_cast<std::int64_t>(ranking.size());
  std::vector<std::int64_t> experts;
  if (!limit) {
    for (std::int64_t e = 0; e < E; ++e) experts.push_back(e);
    return experts;
  }
  const std::int64_t size = E / limit->n;
  std::vector<T> scores;
  for (std::int64_t g = 0; g < limit->n; ++g) {
    const auto member = [&](std::int64_t i) -> const T& {
      return ranking[static_cast<std::size_t>(g * size + i)];
    };
    const std::vector<std::int64_t> order = sorted_positions(size, true, member);
    scores.push_back(sum<T>(limit->top, [&](auto i) { return member(order[static_cast<std::size_t>(i)]); }));
  }
  const auto score = [&](std::int64_t g) -> const T& { return scores[static_cast<std::size_t>(g)]; };
  std::vector<std::int64_t> order = sorted_positions(limit->n, true, score);
  const auto others = std::ranges::stable_partition(order, [&](std::int64_t g) {
    return std::ranges::any_of(given, [&](std::int64_t e) { return e / size == g; });
  });
  const auto of_given = others.begin() - order.begin();
  if (of_given > limit->kept) {
    gap = T(-1) / T(0);
  } else if (of_given > 0 && limit->kept < limit->n) {
    gap = score(order[static_cast<std::size_t>(of_given - 1)]) -
          score(order[static_cast<std::size_t>(limit->kept)]);
  }
  order.resize(static_cast<std::size_t>(limit->kept));
  for (std::int64_t e = 0; e < E; ++e) {
    if (std::ranges::find(order, e / size) != order.end()) experts.push_back(e);
  }
  return experts;
}

/// The best of them first.
template <class T>
std::vector<std::int64_t> sorted_experts(const std::vector<T>& ranking,
                                         const std::vector<std::int64_t>& experts) {
  const auto order =
      sorted_positions(static_cast<std::int64_t>(experts.size()), true, [&](std::int64_t i) -> const T& {
        return ranking[static_cast<std::size_t>(experts[static_cast<std::size_t>(i)])];
      });
  std::vector<std::int64_t> result;
  for (const std::int64_t i : order) result.push_back(experts[static_cast<std::size_t>(i)]);
  return result;
}

/// SparseMixer-v2 (arXiv:2409.12136): each choice has a softmax of its own, over what was not chosen before
/// and is not masked, as those are that are more than `limit` of their size behind the best.
template <class T>
struct SparseMixer {
  SparseMixer(const std::vector<T>& scores, const std::vector<std::int64_t>& choices, const T& limit) {
    const auto E = static_cast<std::int64_t>(scores.size());
    const auto score = [&](std::int64_t e) -> const T& { return scores[static_cast<std::size_t>(e)]; };
    std::vector<bool> is_left(scores.size(), true);
    for (const std::int64_t chosen : choices) {
      T best = T(-1) / T(0);
      for (std::int64_t e = 0; e < E; ++e) {
        if (is_left[static_cast<std::size_t>(e)]) best = maximum<T>(best, score(e));
      }
      const auto room_of = [&](std::int64_t e) {
        // Frameworks compare in the type of the scores: the limit is rounded to it, too.
        return stored(limit) - stored(stored(best - score(e)) / maximum<T>(abs(score(e)), best));
      };
      std::vector<T> share;
      for (std::int64_t e = 0; e < E; ++e) {
        if (is_left[static_cast<std::size_t>(e)])
          share.push_back(stepped<T>(room_of(e), [](double r) { return r < 0 ? 0. : 1.; }) *
                          exp(score(e) - best));
        else
          share.push_back(T(0));
      }
      const T total = sum<T>(E, [&](auto e) { return share[static_cast<std::size_t>(e)]; });
      for (T& s : share) s = stored(s / total);
      weights.push_back(share[static_cast<std::size_t>(chosen)]);
      if (const T own = room_of(chosen); own < room) room = own;
      shares.push_back(std::move(share));
      is_left[static_cast<std::size_t>(chosen)] = false;
    }
  }
  std::vector<T> weights;              ///< of each choice: its share
  std::vector<std::vector<T>> shares;  ///< of all experts, for each choice
  T room = T(1) / T(0);                ///< of the choice that is nearest to its mask
};

/// How many elements of each row are 0.
inline std::vector<std::int64_t> zeros_of_rows(const Tensor& t, std::int64_t width) {
  const std::vector<double> values = t.values();
  std::vector<std::int64_t> zeros;
  for (auto row = values.begin(); row != values.end(); row += width)
    zeros.push_back(std::count(row, row + width, 0.0));
  return zeros;
}

/// The choice that a result of all experts shows: what is not 0 in a row. Where that are fewer than in
/// others, the best of the rest, too.
inline Tensor shown_choice(const Tensor& result, const Tensor& logits) {
  const std::vector<double> values = result.values(), z = logits.values();
  const std::int64_t E = logits.shape().back();
  const std::vector<std::int64_t> zeros = zeros_of_rows(result, E);
  const std::int64_t K = zeros.empty() ? 1 : std::max<std::int64_t>(E - *std::ranges::min_element(zeros), 1);
  std::vector<std::int64_t> chosen;
  for (std::size_t row = 0; row < values.size(); row += static_cast<std::size_t>(E)) {
    const auto rank = [&](std::int64_t e) {
      const std::size_t at = row + static_cast<std::size_t>(e);
      return values[at] != 0 ? infinity : z[at];
    };
    const std::vector<std::int64_t> order = sorted_positions(E, true, rank);
    chosen.insert(chosen.end(), order.begin(), order.begin() + K);
  }
  Shape shape = logits.shape();
  shape.back() = K;
  return Tensor::from_indices(shape, chosen);
}

}  // namespace assay
