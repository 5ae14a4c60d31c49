#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string_view>
#include <type_traits>
#include <vector>

#include "assay/operators/engine/errors_of_columns.h"
#include "assay/operators/engine/operator.h"

namespace assay {

/// One head of the state of linear attention, with what it meets at each token; packed or not, elements lie
/// alike. Letters as in linear_attention.cpp.
template <class T>
struct LinearHead {
  LinearHead(Tensors<T>& t, const Dims& dims, const Attributes& a, const std::vector<T>& decays,
             std::int64_t batch, std::int64_t head)
      : tensors(t),
        d(dims),
        b(batch),
        g(head),
        H(d.at("H")),
        K(d.at("K")),
        G(d.at("G")),
        O(d.at("O")),
        tokens(d.at("T")),
        D(d.at("D")),
        V(d.at("V")),
        F(d.at("F")),
        channels(!d.extents("E").empty()),
        scale(a.has("scale") ? constant<T>(a.real("scale")) : T(1) / sqrt(number<T>(D > 0 ? D : 1))),
        q(data(t, "q")),
        k(data(t, "k")),
        v(data(t, "v")),
        past(data(t, "past_state")),
        decay(t.has("decay") ? decays.data() : nullptr),
        beta(data(t, "beta")) {}
  static const T* data(Tensors<T>& t, std::string_view name) {
    return t.has(name) ? t[name].data() : nullptr;
  }
  std::int64_t at(std::int64_t t, std::int64_t heads, std::int64_t head, std::int64_t width) const {
    return ((b * tokens + t) * heads + head) * width;
  }
  std::int64_t q_at(std::int64_t t, std::int64_t o) const { return at(t, H, o * H / O, D); }
  std::int64_t k_at(std::int64_t t) const { return at(t, K, g * K / G, D); }
  std::int64_t v_at(std::int64_t t) const { return at(t, G, g, V); }
  std::int64_t out_at(std::int64_t t, std::int64_t o) const { return at(t, O, o, V); }
  std::int64_t decay_at(std::int64_t t, std::int64_t c) const {
    return channels ? at(t, G, g, D) + c : at(t, G, g, 1);
  }
  std::int64_t beta_at(std::int64_t t) const { return at(t, F, F == 1 ? 0 : g, 1); }
  std::int64_t state_at() const { return (b * G + g) * D * V; }

  // S' of token t from the state before, and u.
  std::vector<T> decayed(const std::vector<T>& state, std::int64_t t) const {
    std::vector<T> s = state;
    for (std::int64_t i = 0; decay != nullptr && i < D * V; ++i) {
      s[static_cast<std::size_t>(i)] *= exp(decay[decay_at(t, i / V)]);
    }
    return s;
  }
  // (I - beta k k^T) R: what goes back through the write of token t.
  std::vector<T> without_written(const std::vector<T>& R, std::int64_t t) const {
    std::vector<T> rest = R;
    for (std::int64_t c = 0; beta != nullptr && c < V; ++c) {
      const T du = beta[beta_at(t)] *
                   sum<T>(D, [&](auto i) { return R[static_cast<std::size_t>(i * V + c)] * k[k_at(t) + i]; });
      for (std::int64_t i = 0; i < D; ++i) rest[static_cast<std::size_t>(i * V + c)] -= k[k_at(t) + i] * du;
    }
    return rest;
  }
  // v - S'^T k
  T surprise(const std::vector<T>& s, std::int64_t t, std::int64_t c) const {
    return v[v_at(t) + c] -
           sum<T>(D, [&](auto i) { return s[static_cast<std::size_t>(i * V + c)] * k[k_at(t) + i]; });
  }
  T update(const std::vector<T>& s, std::int64_t t, std::int64_t c) const {
    return beta != nullptr ? beta[beta_at(t)] * surprise(s, t, c) : v[v_at(t) + c];
  }
  std::vector<T> initial() const {
    if (past == nullptr) return std::vector<T>(static_cast<std::size_t>(D * V), T(0));
    return std::vector<T>(past + state_at(), past + state_at() + D * V);
  }
  // S_0 .. S_T
  std::vector<std::vector<T>> states() const {
    std::vector<std::vector<T>> all = {initial()};
    ErrorsOfColumns<T> errors(all.front(), V);
    for (std::int64_t t = 0; t < tokens; ++t) {
      const auto next = [&](const std::vector<T>& state) {
        const std::vector<T> before = decayed(state, t);
        std::vector<T> s = before;
        for (std::int64_t c = 0; c < V; ++c) {
          const T u = update(before, t, c);
          for (std::int64_t i = 0; i < D; ++i) s[static_cast<std::size_t>(i * V + c)] += k[k_at(t) + i] * u;
        }
        return s;
      };
      all.push_back(errors.step(all.back(), next, growth(t)));
    }
    return all;
  }
  // |(I - beta k k^T) exp(decay)|, of what a device may hold for them: I - beta k k^T has the eigenvalues 1
  // and 1 - beta |k|^2. The roundings of a step are relative to the state, errors and all: D products and
  // their sum, and a few more.
  double growth(std::int64_t t) const {
    double kept = 1;
    if constexpr (std::is_same_v<T, Bound>) {
      const auto reach = [](const Bound& x) { return std::abs(x.value) + x.error; };
      for (std::int64_t c = 0; decay != nullptr && c < D; ++c) {
        const double of_channel = reach(exp(decay[decay_at(t, c)]));
        kept = c == 0 ? of_channel : std::max(kept, of_channel);
      }
      if (beta == nullptr) return kept * (1 + 8 * ErrorScope::current().unit_roundoff);
      double square = 0;
      for (std::int64_t i = 0; i < D; ++i) square += reach(k[k_at(t) + i]) * reach(k[k_at(t) + i]);
      const Bound& b = beta[beta_at(t)];
      const double most = (b.value + b.error) * square, least = (b.value - b.error) * square;
      const double roundings =
          static_cast<double>(2 * D + 8) * ErrorScope::current().unit_roundoff * (1 + reach(b) * square);
      kept *= std::max({1.0, most - 1, 1 - least}) + roundings;
    }
    return kept;
  }

  Tensors<T>& tensors;
  const Dims& d;
  std::int64_t b, g, H, K, G, O, tokens, D, V, F;
  bool channels;
  T scale;
  const T *q, *k, *v, *past, *decay, *beta;  // null where it is not given
};

}  // namespace assay
