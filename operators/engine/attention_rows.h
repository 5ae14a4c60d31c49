#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <type_traits>
#include <utility>
#include <vector>

#include "assay/operators/engine/alibi.h"
#include "assay/operators/engine/attention_mask.h"
#include "assay/operators/engine/quick_softmax.h"
#include "assay/operators/engine/softcap.h"
#include "assay/operators/engine/visible_products.h"

/// The rows of attention: what one query sees, and with which probabilities. Letters as in attention.cpp.
namespace assay {

// The softmax of a row is the same whatever its scores are shifted by: errors of that number cancel.
template <class T>
T shift_of_softmax(const T& largest) {
  if constexpr (std::is_same_v<T, Bound>)
    return Bound(largest.value);
  else
    return largest;
}

// One query of one head.
template <class T>
struct AttentionRow {
  std::vector<std::int64_t> keys;  // those it sees
  std::vector<T> p;                // their probabilities
  std::vector<T> slope;            // of the softcap, where there is one
  T sink = T(0);                   // probability of the sink
  T lse = T(0);
  std::int64_t size() const { return static_cast<std::int64_t>(keys.size()); }
};

inline constexpr std::int64_t queries_at_once = 64;

// Some queries of a head that follow each other, with the keys that each sees, and the first and the last.
template <class T>
struct SomeQueries {
  std::int64_t first, count, first_key, end_key;
  std::vector<std::vector<std::int64_t>> keys = {};
  std::vector<bool> unseen = {};  // has no visible key, and all with one weight
  std::vector<T> scaled = {};
};

// The inputs of a call, by head: b h of B* H*, key head g of B* G*.
template <class T>
struct AttentionInputs {
  AttentionInputs(Tensors<T>& t, const Dims& d, const Attributes& a)
      : q(t["q"].data()),
        k(t["k"].data()),
        v(t["v"].data()),
        bias(t.optional("bias")),
        sink(t.optional("sink")),
        H(d.at("H")),
        G(d.at("G")),
        L(d.at("L")),
        S(d.at("S")),
        D(d.at("D")),
        V(d.at("V")),
        scale(a.has("scale") ? constant<T>(a.real("scale")) : T(1) / sqrt(number<T>(D > 0 ? D : 1))),
        cap(constant<T>(a.real("softcap"))),
        capped(a.real("softcap") > 0),
        alibi(H, S, scale, a),
        weighs_unseen(!sink && (a.text("unseen") == "mean" ||
                                (a.text("unseen") == "either" && std::is_same_v<T, Bound>))),
        is_sure(a.text("unseen") != "either"),
        wants_lse(t.has("lse") && t.wants("lse")),
        visible({t.optional_index("mask"), t.optional_index("document_q"), t.optional_index("document_k"),
                 t.optional_index("cu_seqlens_q"), t.optional_index("cu_seqlens_k"),
                 t.has("mask") ? &t.shape("mask") : nullptr},
                d, a) {
    if (bias) of_bias = HeadBroadcast(t.shape("bias"), d);
  }
  std::int64_t key_head(std::int64_t head) const { return head / H * G + head % H / (H / G); }

  // Those keys whose bias is -inf are masked.
  SomeQueries<T> queries(std::int64_t head, std::int64_t l) const {
    SomeQueries<T> some{.first = l, .count = std::min(L - l, queries_at_once), .first_key = S, .end_key = 0};
    for (std::int64_t i = 0; i < some.count; ++i) {
      std::vector<std::int64_t> seen = visible(head, l + i);
      if (bias) {
        std::erase_if(seen, [&](std::int64_t s) {
          const T& b = bias.data()[of_bias(head, l + i, s)];
          return isinf(b) && b < T(0);
        });
      }
      some.unseen.push_back(seen.empty() && weighs_unseen);
      if (some.unseen.back()) {
        for (std::int64_t s = 0; s < S; ++s) seen.push_back(s);
      }
      if (!seen.empty()) {
        some.first_key = std::min(some.first_key, seen.front());
        some.end_key = std::max(some.end_key, seen.back() + 1);
      }
      some.keys.push_back(std::move(seen));
    }
    some.first_key = std::min(some.first_key, some.end_key);
    return some;
  }
  // q k^T of some queries, scaled; where the error model is quick, scaled() does it: q itself has few digits.
  DotProducts<T> scores(std::int64_t head, SomeQueries<T>& of) const {
    const T* x = q + (head * L + of.first) * D;
    if (!is_quick()) {
      of.scaled = terms_of<T>(of.count * D, [&](auto i) { return x[i] * scale; });
      x = of.scaled.data();
    }
    return {x, of.count, k + (key_head(head) * S + of.first_key) * D, of.end_key - of.first_key, D};
  }
  static bool is_quick() {
    if constexpr (std::is_same_v<T, Bound>) return as_matrices<T>();
    return false;
  }

  // Scores of the visible keys.
  AttentionRow<T> row(std::int64_t head, const SomeQueries<T>& of, std::int64_t i,
                      const DotProducts<T>& products) const {
    AttentionRow<T> row;
    std::vector<T> scores, kept;
    const std::int64_t l = of.first + i;
    const auto as_is = [](const T& x) { return x; };
    const bool scales = is_quick(), keeps = stores(), fuses = !keeps || wants_lse;
    row.keys = of.keys[static_cast<std::size_t>(i)];
    scores.reserve(fuses ? row.keys.size() + 1 : 0);
    kept.reserve(keeps ? row.keys.size() + 1 : 0);
    for (const std::int64_t s : row.keys) {
      const T dot = products(i, s - of.first_key), product = scales ? dot * scale : dot;
      if (capped) row.slope.push_back(slope_of_softcap(product, cap, as_is));
      const auto score = [&](auto store) {
        T score = store(store(product));
        if (capped) score = softcapped(score, cap, store);
        if (alibi) score = store(score + alibi(head % H, s, visible.ahead(l, s)));
        if (alibi.is_scaled()) score = store(score);
        return bias ? store(score + bias.data()[of_bias(head, l, s)]) : score;
      };
      if (fuses) scores.push_back(score(as_is));
      if (keeps) kept.push_back(score([](const T& x) { return stored(x); }));
    }
    if (of.unseen[static_cast<std::size_t>(i)]) return with_one_weight(std::move(row));
    if (sink && fuses) scores.push_back(sink.data()[head % H]);
    if (fuses) normalise(row, std::move(scores), !keeps);
    if (!keeps) return row;
    // What is not fused stores the product, stores it again with its scale, and makes no lse.
    if (sink) {  // gpt-oss: the differences to the largest, too
      kept.push_back(sink.data()[head % H]);
      const T largest = shift_of_softmax(*std::ranges::max_element(kept));
      for (T& score : kept) score = stored(score - largest);
    }
    const T lse = row.lse;
    row.p.clear();
    normalise(row, std::move(kept), true);
    row.lse = lse;
    return row;
  }
  // Where it is not known whether it is, kernels may have as much as nothing.
  AttentionRow<T> with_one_weight(AttentionRow<T> row) const {
    T p = T(1) / number<T>(S);
    if constexpr (std::is_same_v<T, Bound>) {
      if (!is_sure) p = Bound(0, p.value + p.error);
    }
    row.p.assign(row.keys.size(), p);
    row.lse = -T(1) / T(0);
    return row;
  }
  static bool stores() { return std::is_same_v<T, Bound> && ErrorScope::current().stored_roundoff > 0; }

  // The largest stands apart: log1p keeps an lse near 0. Kernels have log, and probabilities from lse.
  // @param wants_p  or the lse alone
  void normalise(AttentionRow<T>& row, std::vector<T> scores, bool wants_p) const {
    const auto n = static_cast<std::int64_t>(scores.size());
    const auto at = [](const std::vector<T>& list, std::int64_t i) {
      return list[static_cast<std::size_t>(i)];
    };
    if (n == 0) {
      row.lse = -T(1) / T(0);
      return;
    }
    std::size_t top = 0;
    for (std::size_t i = 1; i < scores.size(); ++i) {
      if (scores[top] < scores[i]) top = i;
    }
    const T largest = shift_of_softmax(scores[top]);
    if constexpr (std::is_same_v<T, Bound>) {
      if (is_quick() && are_finite(scores)) {
        const ExponentialSums sums = take_exponentials(scores, top);
        row.lse = largest + without_cancellation<Bound>([&] { return log1p(sums.others); },
                                                        [&] { return log(sums.all); });
        if (!wants_p) return;
        divide_by(sums.all, scores);
        if (scores.size() > row.keys.size()) {
          row.sink = scores.back();
          scores.pop_back();
        }
        row.p = std::move(scores);
        return;
      }
    }
    std::vector<T> e;
    e.reserve(scores.size());
    row.p.reserve(scores.size());
    for (const T& score : scores) e.push_back(exp(score - largest));
    const T total = sum<T>(n, [&](auto i) { return at(e, i); });
    row.lse = largest + without_cancellation<T>(
                            [&] {
                              return log1p(sum<T>(n, [&](auto i) {
                                return static_cast<std::size_t>(i) == top ? expm1(at(scores, i) - largest)
                                                                          : at(e, i);
                              }));
                            },
                            [&] { return log(total); });
    for (std::size_t i = 0; wants_p && i < e.size(); ++i) {
      const T p = either<T>([&] { return e[i] / total; }, [&] { return exp(scores[i] - row.lse); });
      if (i < row.keys.size())
        row.p.push_back(p);
      else
        row.sink = p;
    }
  }

  const T *q, *k, *v;
  View<T> bias, sink;
  std::int64_t H, G, L, S, D, V;
  T scale, cap;
  bool capped;
  Alibi<T> alibi;
  bool weighs_unseen, is_sure, wants_lse;
  VisibleKeys visible;
  HeadBroadcast of_bias;
};

}  // namespace assay
