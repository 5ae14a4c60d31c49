#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "assay/operators/engine/products.h"
#include "assay/operators/engine/rotary_attention.h"

/// Attention between projections of what it is given and one of what it makes. Letters and arguments as in
/// multihead_attention.cpp.
namespace assay {

/// What makes q, k or v.
template <class T>
struct Projection {
  std::string_view of, weight = {};
  const T *x = nullptr, *w = nullptr, *b = nullptr;
  std::int64_t tokens = 0, rows = 0, channels = 0;  // tokens of a sequence, of all
};

/// y = x w^T + b of N rows. Kernels may store the product before a bias is added.
template <class T>
std::vector<T> projected(const T* x, const T* w, const T* b, std::int64_t N, std::int64_t M, std::int64_t K) {
  std::vector<T> y(static_cast<std::size_t>(N * M));
  products<T>({N, M, K, {x, K, 1}, {w, 1, K}, {y.data(), M, 1}});
  for (std::size_t i = 0; i < y.size() && b != nullptr; ++i)
    y[i] = stored(y[i]) + b[i % static_cast<std::size_t>(M)];
  return y;
}
/// The values as kernels keep them.
template <class T>
std::vector<T> all_stored(std::vector<T> values) {
  for (T& v : values) v = stored(v);
  return values;
}

/// grad_w = g^T x, grad_b = sum g, where they are.
template <class T>
void give_weights(const T* g, const T* x, std::int64_t N, std::int64_t M, std::int64_t K, T* grad_w,
                  T* grad_b) {
  if (grad_w != nullptr) products<T>({M, K, N, {g, 1, M}, {x, K, 1}, {grad_w, K, 1}});
  for (std::int64_t m = 0; m < M && grad_b != nullptr; ++m)
    grad_b[m] = sum<T>(N, [&](auto n) { return g[n * M + m]; });
}

/// A mask of scores for all heads, or for each, and one of keys: as one, and where it has their elements.
struct MergedMasks {
  Shape shape;
  std::vector<std::int64_t> of_scores, of_keys;
};
inline MergedMasks merged_masks(const Dims& d, const Shape* scores, bool has_keys) {
  const bool is_by_head = scores != nullptr && scores->size() == 3;
  const std::int64_t L = d.at("L"), S = d.at("S"), B = has_keys || is_by_head ? d.at("B") : 1,
                     H = is_by_head ? d.at("H") : 1;
  MergedMasks all{{B, H, L, S}, {}, {}};
  for (std::int64_t head = 0; head < B * H; ++head) {
    for (std::int64_t i = 0; i < L * S; ++i) {
      all.of_scores.push_back((is_by_head ? head * L * S : 0) + i);
      all.of_keys.push_back(head / H * S + i % S);
    }
  }
  return all;
}

/// A call: run() of inner lies between what it is given and what it gives.
template <class T>
struct MultiheadAttentionOf {
  MultiheadAttentionOf(Tensors<T>& tensors, const Dims& dims, const Attributes& a)
      : t(tensors),
        d(dims),
        batch_first(a.flag("batch_first")),
        B(d.at("B")),
        L(d.at("L")),
        S(d.at("S")),
        E(d.at("E")),
        H(d.at("H")),
        D(d.at("D")),
        shows_weights(t.has("grad_attn_output_weights")),
        scale(a.has("scale") ? constant<T>(a.real("scale")) : T(1) / sqrt(number<T>(D > 0 ? D : 1))),
        parts(projections()),
        inner(attention(a)) {
    add_masks();
  }

  std::array<Projection<T>, 3> projections() const {
    const std::string_view value = t.has("value") ? "value"
                                   : t.has("key") ? "key"
                                                  : "query",
                           key = t.has("key") ? "key" : "query";
    std::array<Projection<T>, 3> all = {Projection<T>{.of = "query", .weight = "q_proj_weight"},
                                        {.of = key, .weight = "k_proj_weight"},
                                        {.of = value, .weight = "v_proj_weight"}};
    const bool packed = t.has("in_proj_weight");
    const T* b = t.optional("in_proj_bias").data();
    for (std::int64_t i = 0; i < 3; ++i) {
      Projection<T>& p = all[static_cast<std::size_t>(i)];
      p.channels = d.at(i == 0 ? "E" : i == 1 ? "K" : "V");
      p.tokens = i == 0 ? L : S;
      p.rows = B * p.tokens;
      p.x = t[p.of].data();
      p.w = packed ? t["in_proj_weight"].data() + i * E * E : t[p.weight].data();
      p.b = b != nullptr ? b + i * E : nullptr;
    }
    return all;
  }

  // Rows of E channels as the tensors have their tokens to [B, H, tokens, D], or back.
  std::vector<T> by_heads(const std::vector<T>& x, std::int64_t tokens, bool back = false) const {
    std::vector<T> y(x.size());
    for (std::int64_t b = 0; b < B; ++b) {
      for (std::int64_t l = 0; l < tokens; ++l) {
        const std::int64_t row = batch_first ? b * tokens + l : l * B + b;
        for (std::int64_t c = 0; c < E; ++c) {
          const auto of_head = static_cast<std::size_t>(((b * H + c / D) * tokens + l) * D + c % D),
                     of_token = static_cast<std::size_t>(row * E + c);
          y[back ? of_token : of_head] = x[back ? of_head : of_token];
        }
      }
    }
    return y;
  }
  // Of rows of D channels each followed by S others, the first, or with them.
  std::vector<T> first_of(const std::vector<T>& x) const {
    if (!shows_weights) return x;
    std::vector<T> y;
    for (auto row = x.begin(); row != x.end(); row += D + S) y.insert(y.end(), row, row + D);
    return y;
  }
  template <class F>
  std::vector<T> with_others(const std::vector<T>& x, F other) const {
    if (!shows_weights) return x;
    std::vector<T> y;
    const std::int64_t rows = std::ssize(x) / D;
    for (std::int64_t r = 0; r < rows; ++r) {
      y.insert(y.end(), x.begin() + r * D, x.begin() + (r + 1) * D);
      for (std::int64_t s = 0; s < S; ++s) y.push_back(other(r, s));
    }
    return y;
  }

  // Where the weights have a gradient they are seen as attention's result of a unit matrix beside v.
  InnerAttention<T> attention(const Attributes& a) const {
    std::array<std::vector<T>, 3> made;
    for (std::size_t i = 0; i < 3; ++i) {
      const Projection<T>& p = parts[i];
      made[i] = by_heads(all_stored(projected(p.x, p.w, p.b, p.rows, E, p.channels)), p.tokens);
    }
    for (T& q : made[0]) q = stored(q * scale);
    Dims outer;
    for (const auto& [letter, extent] : {std::pair<std::string_view, std::int64_t>{"B", B},
                                         {"L", L},
                                         {"S", S},
                                         {"heads", H},
                                         {"groups", H},
                                         {"D", D},
                                         {"W", shows_weights ? D + S : D}})
      outer.set(letter, extent);
    const auto unit = [&](std::int64_t row, std::int64_t s) { return T(row % S == s ? 1 : 0); };
    return {outer, complete_attributes(ops::attention, {{"scale", 1}, {"is_causal", a.flag("is_causal")}}),
            std::move(made[0]), std::move(made[1]), with_others(made[2], unit)};
  }

  void add_masks() {
    if (t.has("attn_mask") || t.has("key_padding_mask")) {
      const auto of_scores = t.optional_index("attn_mask"), of_keys = t.optional_index("key_padding_mask");
      const MergedMasks all = merged_masks(d, of_scores ? &t.shape("attn_mask") : nullptr, bool(of_keys));
      std::vector<std::int64_t> visible;
      for (std::size_t i = 0; i < all.of_scores.size(); ++i) {
        const bool hidden = (of_scores && of_scores.data()[all.of_scores[i]] != 0) ||
                            (of_keys && of_keys.data()[all.of_keys[i]] != 0);
        visible.push_back(hidden ? 0 : 1);
      }
      inner.take_mask(std::move(visible), all.shape);
    }
    if (t.has("attn_bias") || t.has("key_padding_bias")) {
      const auto of_scores = t.optional("attn_bias"), of_keys = t.optional("key_padding_bias");
      biases = merged_masks(d, of_scores ? &t.shape("attn_bias") : nullptr, bool(of_keys));
      std::vector<T> bias;
      for (std::size_t i = 0; i < biases.of_scores.size(); ++i) {
        T b = of_scores ? of_scores.data()[biases.of_scores[i]] : T(0);
        if (of_keys)
          b = of_scores ? stored(b + of_keys.data()[biases.of_keys[i]]) : of_keys.data()[biases.of_keys[i]];
        bias.push_back(b);
      }
      inner.take_bias(std::move(bias), biases.shape);
    }
  }

  void give_results() {
    out = by_heads(first_of(inner.kept("out")), L, true);
    const T *w = t["out_proj_weight"].data(), *b = t.optional("out_proj_bias").data();
    if (t.wants("attn_output"))
      std::ranges::move(projected(out.data(), w, b, B * L, E, E), t["attn_output"].data());
    if (!t.wants("attn_output_weights")) return;
    const std::vector<T> p = inner.probabilities();
    T* weights = t["attn_output_weights"].data();
    if (!is_averaged()) {
      std::ranges::copy(p, weights);
      return;
    }
    for (std::int64_t i = 0; i < B * L * S; ++i) {
      const std::int64_t first = i / (L * S) * H * L * S + i % (L * S);
      weights[i] =
          stored(sum<T>(H, [&](auto h) { return stored(p[static_cast<std::size_t>(first + h * L * S)]); })) /
          number<T>(H);
    }
  }
  bool is_averaged() const { return t.slot("attn_output_weights").extents.size() == 3; }

  void take_gradient() {
    const std::vector<T> g = slot("grad_attn_output");
    const T* w = t["out_proj_weight"].data();
    std::vector<T> of_out(g.size());
    products<T>({B * L, E, E, {g.data(), E, 1}, {w, E, 1}, {of_out.data(), E, 1}});
    const T* of_weights = t.optional("grad_attn_output_weights").data();
    const bool averaged = is_averaged();
    inner.take_gradient(
        with_others(by_heads(all_stored(std::move(of_out)), L),
                    [&](std::int64_t row, std::int64_t s) {
                      if (!averaged) return of_weights[row * S + s];
                      return stored(of_weights[(row / (H * L) * L + row % L) * S + s] / number<T>(H));
                    }),
        wants_of_bias("attn_bias") || wants_of_bias("key_padding_bias"));
  }
  bool wants_of_bias(const std::string& bias) const { return t.has(bias) && t.wants("grad_" + bias); }
  const std::vector<T>& slot(std::string_view arg) const { return t.slot(arg).values; }
  T* result(std::string_view arg) const {
    const std::string gradient = fmt::format("grad_{}", arg);
    return t.has(gradient) && t.wants(gradient) ? t[gradient].data() : nullptr;
  }

  void give_gradients() {
    give_weights(slot("grad_attn_output").data(), out.data(), B * L, E, E, result("out_proj_weight"),
                 result("out_proj_bias"));
    std::array<std::vector<T>, 3> g = {by_heads(inner.kept("grad_q"), L, true),
                                       by_heads(inner.kept("grad_k"), S, true),
                                       by_heads(first_of(inner.kept("grad_v")), S, true)};
    for (T& q : g[0]) q = stored(q * scale);
    T *of_all = result("in_proj_weight"), *of_bias = result("in_proj_bias");
    for (std::size_t i = 0; i < 3; ++i) {
      const Projection<T>& p = parts[i];
      const auto at = static_cast<std::int64_t>(i);
      T* of_weight =
          t.has("in_proj_weight") ? of_all == nullptr ? nullptr : of_all + at * E * E : result(p.weight);
      give_weights(g[i].data(), p.x, p.rows, E, p.channels, of_weight,
                   of_bias == nullptr ? nullptr : of_bias + at * E);
    }
    for (const char* input : {"query", "key", "value"}) {
      if (T* of_input = result(input)) give_input(input, g, of_input);
    }
    give_biases();
  }

  // One tensor for several has one product with their weights, if these are one, too, and value is among
  // it.
  void give_input(std::string_view input, const std::array<std::vector<T>, 3>& g, T* of_input) const {
    std::vector<std::size_t> by;
    for (std::size_t i = 0; i < 3; ++i) {
      if (parts[i].of == input) by.push_back(i);
    }
    const Projection<T>& p = parts[by.front()];
    const auto n = static_cast<std::int64_t>(by.size());
    const auto of_parts = [&](const T* grads, std::int64_t M, const T* w, T* x) {
      products<T>({p.rows, p.channels, M, {grads, M, 1}, {w, p.channels, 1}, {x, p.channels, 1}});
    };
    if (n == 1) return of_parts(g[by.front()].data(), E, p.w, of_input);
    if (t.has("in_proj_weight") && by.back() == 2) {
      std::vector<T> rows;
      for (std::int64_t r = 0; r < p.rows; ++r) {
        for (const std::size_t i : by)
          rows.insert(rows.end(), g[i].begin() + r * E, g[i].begin() + (r + 1) * E);
      }
      return of_parts(rows.data(), n * E, p.w, of_input);
    }
    std::vector<std::vector<T>> terms;
    for (const std::size_t i : by) {
      terms.emplace_back(static_cast<std::size_t>(p.rows * p.channels));
      of_parts(g[i].data(), E, parts[i].w, terms.back().data());
      terms.back() = all_stored(std::move(terms.back()));
    }
    for (std::size_t i = 0; i < terms.front().size(); ++i)
      of_input[i] = sum_in_memory<T>(n, [&](auto part) { return terms[static_cast<std::size_t>(part)][i]; });
  }

  void give_biases() {
    for (const auto& [bias, places] :
         {std::pair<const char*, const std::vector<std::int64_t>*>{"attn_bias", &biases.of_scores},
          {"key_padding_bias", &biases.of_keys}}) {
      T* of_bias = result(bias);
      if (of_bias == nullptr) continue;
      const std::vector<T> made = inner.kept("grad_bias");
      std::vector<std::vector<T>> terms(slot(bias).size());
      for (std::size_t i = 0; i < made.size(); ++i)
        terms[static_cast<std::size_t>((*places)[i])].push_back(made[i]);
      for (const std::vector<T>& of_one : terms)
        *of_bias++ = sum<T>(std::ssize(of_one), [&](auto i) { return of_one[static_cast<std::size_t>(i)]; });
    }
  }

  Tensors<T>& t;
  const Dims& d;
  bool batch_first;
  std::int64_t B, L, S, E, H, D;
  bool shows_weights;
  T scale;
  std::array<Projection<T>, 3> parts;
  InnerAttention<T> inner;
  MergedMasks biases = {};
  std::vector<T> out = {};  // attention's, by token
};

}  // namespace assay
