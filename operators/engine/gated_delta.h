#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include "assay/golden/error.h"
#include "assay/operators/engine/inner_call.h"
#include "assay/operators/engine/recorded.h"
#include "assay/operators/engine/softplus.h"

/// The gated delta rule between the projections of a layer (Gated DeltaNet), with what programs do to its
/// operands first. B sequences of T tokens; K heads of q and k with D channels, G of v with V; a group of
/// G / K neighbours of v's shares q and k.
namespace assay {

/// q and k [B, T, K, D] and v [B, T, G, V], or gradients of them.
template <class T>
struct DeltaOperands {
  std::vector<T> q, k, v;
};

/// What its operators share; Op gives and takes back the operands.
template <class Op>
struct GatedDelta {
  static constexpr Attribute heads_attribute = {"num_k_heads", "null",
                                                "heads of q and k; null: as many as of v"},
                             beta_attribute = {"beta_scale", "1",
                                               "factor of beta; 2 lets a state change its sign"},
                             scale_attribute = {"scale", "null", "factor of out; null: 1 / sqrt(D)"},
                             eps_attribute = {"l2_eps", "1e-6", "under the root of the norms of q and k"};
  /// G gates a token, or b and a of each group side by side: Y = 2 G.
  static constexpr Arg a_argument = {"a", "B,T,Y", Role::input},
                       b_argument = {.name = "b", .shape = "B,T,G", .role = Role::input, .optional = true},
                       A_log_argument = {"A_log", "G", Role::param, -1, 1},
                       dt_bias_argument = {"dt_bias", "G", Role::param, -1, 1},
                       grad_a_argument = {.name = "grad_a",
                                          .shape = "B,T,Y",
                                          .role = Role::grad_input,
                                          .terms = "V D + chain + chain"},
                       grad_b_argument = {.name = "grad_b",
                                          .shape = "B,T,G",
                                          .role = Role::grad_input,
                                          .optional = true,
                                          .terms = "V + D + chain + chain"},
                       grad_A_log_argument = {.name = "grad_A_log",
                                              .shape = "G",
                                              .role = Role::grad_input,
                                              .terms = "V D + chain + chain + B T"},
                       grad_dt_bias_argument = {.name = "grad_dt_bias",
                                                .shape = "G",
                                                .role = Role::grad_input,
                                                .terms = "V D + chain + chain + B T"};
  static constexpr Seen seen[] = {{"beta_scale", "2", "OLMo Hybrid"}};
  static constexpr Solved solved[] = {
      {.attribute = "scale", .by = Solved::By::factor},
      {.attribute = "num_k_heads", .by = Solved::By::candidates, .how = "every divisor of the heads of v"}};
  static constexpr bool shares_steps = true;
  static constexpr std::string_view causal_along = "T";

  /// Of a shape [B, T, G], or of b and a side by side for each group: [B, T, 2 G].
  static bool has_gates(InputShapes inputs, const Shape& a) {
    const std::int64_t G = element_count(shape_of_input(inputs, "A_log"));
    return a.size() == 3 && a[2] == (find_input(inputs, "b") != nullptr ? G : 2 * G);
  }

  /// States and what goes into them stay in a sequence and in a group of heads.
  static std::vector<std::int64_t> steps_apart(std::string_view, const Shape& shape, const Dims& d,
                                               const Attributes&) {
    std::vector<std::int64_t> groups;
    const std::int64_t B = d.at("B"), K = d.at("K"), rows = B * d.at("T"), count = element_count(shape);
    if (count == 0) return groups;
    const bool is_param = count == d.at("G") && shape.size() == 1;
    const std::int64_t of_row = is_param ? count : count / rows;
    if ((!is_param && count % rows != 0) || of_row % K != 0) return groups;
    for (std::int64_t i = 0; i < count; ++i)
      groups.push_back((is_param ? 0 : i / (count / B) * K) + i % of_row / (of_row / K));
    return groups;
  }

  static std::vector<Candidate> candidates(const Attributes&, const Recorded& call) {
    std::vector<Candidate> all;
    const Tensor* A_log = call.input("A_log");
    if (A_log == nullptr) return all;
    const std::int64_t G = A_log->size();
    for (std::int64_t K = 1; K < G; ++K) {
      if (G % K == 0)
        all.push_back({{{"num_k_heads", static_cast<double>(K)}}, fmt::format("num_k_heads = {}", K)});
    }
    return all;
  }

  /// B, T, G, K and what follows from them; D and V are the operator's.
  static void bind_heads(Dims& d, InputShapes inputs, const Attributes& a) {
    const Shape& gates = shape_of_input(inputs, "a");
    const std::int64_t G = shape_of_input(inputs, "A_log")[0],
                       K = a.has("num_k_heads") ? a.integer("num_k_heads") : G;
    if (!has_gates(inputs, gates)) {
      throw Error("{}: a has shape {} for {} heads; expected [B, T, {}], or [B, T, {}] without b", Op::name,
                  to_string(gates), G, G, 2 * G);
    }
    if (K < 1 || G % K != 0)
      throw Error("{}: {} heads of q and k for {} of v; expected a divisor of these", Op::name, K, G);
    d.set("G", G);
    d.set("K", K);
    d.set("copies", G / K);
  }
  static void bind_channels(Dims& d, InputShapes inputs, std::int64_t D, std::int64_t V) {
    const Shape& gates = shape_of_input(inputs, "a");
    d.set("D", D);
    d.set("V", V);
    d.set("chain", gates[1] * D);  // of one step's update, as in linear_attention
    const Shape made = {gates[0], gates[1], d.at("G"), V};
    const InputShape* grad_out = find_input(inputs, "grad_out");
    const bool is_other =
        grad_out != nullptr && element_count(grad_out->shape) == element_count(made);  // [B T G, V]
    d.set("O", is_other ? grad_out->shape : made);
  }

  template <class T>
  static void forward(Tensors<T>& t, const Dims& d, const Attributes& a) {
    if (t.has("grad_out")) return;  // backward makes it on its way
    InnerCall<T> rule = rule_of(t, d, a, Op::operands(t, d, a));
    rule.run();
    give(t, "out", rule.made("out"));
  }

  template <class T>
  static void backward(Tensors<T>& t, const Dims& d, const Attributes& a) {
    const DeltaOperands<T> x = Op::operands(t, d, a);
    InnerCall<T> rule = rule_of(t, d, a, x);
    rule.run();
    give(t, "out", rule.made("out"));
    Op::give_back(t, d, a,
                  DeltaOperands<T>{units_back(x.q, rule.kept("grad_q"), d, a),
                                   units_back(x.k, rule.kept("grad_k"), d, a), rule.made("grad_v")});
    give_gradients_of_gates(t, d, a, rule);
  }

  template <class T>
  static void give(Tensors<T>& t, std::string_view to, const std::vector<T>& values) {
    std::ranges::copy(values, t[to].data());
  }

 private:
  // Where the gates of a head of v are, in [B, T, G] or, of b and then a of each group, [B, T, 2 G].
  struct Gates {
    Gates(const Dims& d, bool is_apart) : G(d.at("G")), copies(d.at("copies")), apart(is_apart) {}
    // Of head i of [B, T, G].
    std::int64_t of_a(std::int64_t i) const { return apart ? i : of_b(i) + copies; }
    std::int64_t of_b(std::int64_t i) const { return apart ? i : i / copies * 2 * copies + i % copies; }
    std::int64_t G, copies;
    bool apart;
  };
  template <class T>
  static Gates gates_of(Tensors<T>& t, const Dims& d) {
    return {d, t.has("b")};
  }
  static std::string_view holds_b(const Gates& at) { return at.apart ? "b" : "a"; }

  // log of the decay: -exp(A_log) softplus(a + dt_bias), which programs have in float32.
  template <class T>
  struct Decay {
    Decay(Tensors<T>& t, const Gates& gates, std::int64_t i)
        : rate(exp(t["A_log"].data()[i % gates.G])),
          z(t["a"].data()[gates.of_a(i)] + t["dt_bias"].data()[i % gates.G]) {}
    T rate, z;
  };

  template <class T>
  static InnerCall<T> rule_of(Tensors<T>& t, const Dims& d, const Attributes& a, const DeltaOperands<T>& x) {
    const std::int64_t B = d.at("B"), tokens = d.at("T"), G = d.at("G"), D = d.at("D"), V = d.at("V");
    const Gates at = gates_of(t, d);
    const Shape keys = {B, tokens, G, D}, values = {B, tokens, G, V}, gates = {B, tokens, G};
    std::vector<typename InnerCall<T>::Input> inputs = {{"q", keys, units(x.q, d, a)},
                                                        {"k", keys, units(x.k, d, a)},
                                                        {"v", values, x.v},
                                                        {"decay", gates, {}},
                                                        {"beta", gates, {}}};
    const T* b = t[holds_b(at)].data();
    for (std::int64_t i = 0; i < B * tokens * G; ++i) {
      const Decay<T> decay(t, at, i);
      inputs[3].values.push_back(-decay.rate * softplus(decay.z));
      inputs[4].values.push_back(scaled(stored(sigmoid(b[at.of_b(i)])), a));
    }
    if (t.has("grad_out")) inputs.push_back({"grad_out", values, t.slot("grad_out").values});
    Attributes of_rule;
    if (a.has("scale")) of_rule.set("scale", a.real("scale"));
    return {ops::linear_attention, of_rule, std::move(inputs)};
  }
  template <class T>
  static T scaled(const T& beta, const Attributes& a) {
    return a.real("beta_scale") == 1 ? beta : stored(constant<T>(a.real("beta_scale")) * beta);
  }

  // 1 / sqrt(|x|^2 + eps) of the D channels of a head.
  template <class T>
  static T inverse_norm(const T* x, const Dims& d, const Attributes& a) {
    const T square = stored(sum<T>(d.at("D"), [&](auto c) { return stored(x[c] * x[c]); }));
    return stored(T(1) / sqrt(stored(square + constant<T>(a.real("l2_eps")))));
  }
  // [B, T, K, D] to [B, T, G, D], of norm 1.
  template <class T>
  static std::vector<T> units(const std::vector<T>& x, const Dims& d, const Attributes& a) {
    const std::int64_t D = d.at("D"), copies = d.at("copies");
    std::vector<T> all;
    all.reserve(x.size() * static_cast<std::size_t>(copies));
    for (std::int64_t at = 0; at < std::ssize(x); at += D) {
      const T* head = x.data() + at;
      const T by = inverse_norm(head, d, a);
      for (std::int64_t i = 0; i < copies * D; ++i) all.push_back(stored(head[i % D] * by));
    }
    return all;
  }
  // Of x r, r = (|x|^2 + eps)^(-1/2): g r - x r^3 (g x), the last as autograd has it, through x x.
  template <class T>
  static std::vector<T> units_back(const std::vector<T>& x, const std::vector<T>& of_units, const Dims& d,
                                   const Attributes& a) {
    const std::int64_t D = d.at("D"), copies = d.at("copies");
    std::vector<T> all;
    all.reserve(x.size());
    for (std::int64_t at = 0; at < std::ssize(x); at += D) {
      const T *head = x.data() + at, *given = of_units.data() + at * copies;
      const T by = inverse_norm(head, d, a);
      const std::vector<T> g = terms_of<T>(
          D, [&](auto c) { return stored(sum<T>(copies, [&](auto i) { return given[i * D + c]; })); });
      const T of_inverse =
          stored(sum<T>(D, [&](auto c) { return stored(g[static_cast<std::size_t>(c)] * head[c]); }));
      const T of_square = stored(T(-0.5) * of_inverse * (by * by * by));
      for (std::int64_t c = 0; c < D; ++c) {
        const T once = stored(of_square * head[c]);
        all.push_back(stored(stored(stored(g[static_cast<std::size_t>(c)] * by) + once) + once));
      }
    }
    return all;
  }

  template <class T>
  static void give_gradients_of_gates(Tensors<T>& t, const Dims& d, const Attributes& a, InnerCall<T>& rule) {
    const std::int64_t G = d.at("G"), n = d.at("B") * d.at("T");
    const Gates at = gates_of(t, d);
    const std::vector<T>&of_decay = rule.made("grad_decay"), of_beta = rule.kept("grad_beta");
    const T* b = t[holds_b(at)].data();
    T *grad_a = t["grad_a"].data(), *grad_b = t[at.apart ? "grad_b" : "grad_a"].data();
    std::vector<T> of_z, of_rate;
    for (std::int64_t i = 0; i < n * G; ++i) {
      const auto here = static_cast<std::size_t>(i);
      const Decay<T> decay(t, at, i);
      of_rate.push_back(of_decay[here] * softplus(decay.z));
      of_z.push_back(of_decay[here] * -decay.rate * softplus_slope(decay.z));
      grad_a[at.of_a(i)] = of_z[here];
      grad_b[at.of_b(i)] = scaled(of_beta[here], a) * sigmoid_slope(b[at.of_b(i)]);
    }
    for (std::int64_t g = 0; g < G; ++g) {
      const auto over_tokens = [&](const std::vector<T>& terms) {
        return sum<T>(n, [&](auto i) { return terms[static_cast<std::size_t>(i * G + g)]; });
      };
      t["grad_dt_bias"].data()[g] = over_tokens(of_z);
      t["grad_A_log"].data()[g] = -exp(t["A_log"].data()[g]) * over_tokens(of_rate);
    }
  }
};

}  // namespace assay
