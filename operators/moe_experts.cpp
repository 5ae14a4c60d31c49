#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <string>
#include <vector>

#include "assay/golden/error.h"
#include "assay/operators/engine/gelu.h"
#include "assay/operators/engine/list.h"
#include "assay/operators/engine/moe_rows.h"
#include "assay/operators/engine/recorded.h"

namespace assay {
namespace {

// N* tokens of C channels, of which each goes to K of E experts with I channels inside. J = 2I: gate and up
// side by side; J = I: up alone, f(up x) without a gate. "rows": the choices of all tokens. Without index
// tokens lie expert by expert, as many of each; without weights each is 1.
struct MoeExperts {
  static constexpr std::string_view name = "moe_experts";
  static constexpr std::string_view math =
      "y_t = sum over k of weights_tk down_e h, h = f(gate_e x_t) up_e x_t, or f(up_e x_t) without a gate; "
      "e = index_tk";
  static constexpr std::string_view source =
      "arXiv:2401.04088 eq. 2; Hugging Face transformers 5 MixtralExperts, Qwen3MoeExperts, GptOssExperts, "
      "Llama4TextExperts; gated units arXiv:2002.05202 eq. 6";
  static constexpr std::string_view aliases[] = {"MixtralExperts", "Qwen3MoeExperts"};
  static constexpr Attribute attributes[] = {
      {"activation", "\"silu\"",
       "f: silu, gelu (by erf), gelu_tanh, relu, relu_squared or swigluoai, x sigmoid(alpha x) of a gate of "
       "at "
       "most limit, times up + 1 of an up within it"},
      {"alpha", "1.702", "of swigluoai"},
      {"limit", "7", "of swigluoai"},
      {"gate_first", "true", "the first I rows of gate_up are the gate; false: the last"},
      {"interleaved", "false", "rows of gate and up take turns"},
      {"transposed", "false", "gate_up is [E, C, J], down [E, I, C]"},
      {"gated", "true", "false: gate_up is up alone, J = I"},
      {"dropped", "-1", "the index of a choice that no expert gets"}};
  static constexpr Arg args[] = {
      {"x", "N*,C", Role::input},
      {.name = "index",
       .shape = "N*,K",
       .role = Role::index,
       .optional = true,
       .indexes = "E",
       .except = "dropped"},
      {.name = "weights", .shape = "N*,K", .role = Role::input, .low = 0, .high = 1, .optional = true},
      {"gate_up", "E,J,C", Role::param},
      {"down", "E,C,I", Role::param},
      {.name = "gate_up_bias", .shape = "E,J", .role = Role::param, .optional = true},
      {.name = "down_bias", .shape = "E,C", .role = Role::param, .optional = true},
      {"grad_y", "N*,C", Role::grad_output},
      {.name = "y", .shape = "N*,C", .role = Role::output, .terms = "C + I + K"},
      {.name = "grad_x", .shape = "N*,C", .role = Role::grad_input, .terms = "C + C + J + K"},
      {.name = "grad_weights",
       .shape = "N*,K",
       .role = Role::grad_input,
       .optional = true,
       .terms = "C + I + C"},
      {.name = "grad_gate_up", .shape = "E,J,C", .role = Role::grad_input, .terms = "C + C + rows"},
      {.name = "grad_down", .shape = "E,C,I", .role = Role::grad_input, .terms = "C + rows"},
      {.name = "grad_gate_up_bias",
       .shape = "E,J",
       .role = Role::grad_input,
       .optional = true,
       .terms = "C + C + rows"},
      {.name = "grad_down_bias", .shape = "E,C", .role = Role::grad_input, .optional = true, .terms = "rows"},
  };
  static constexpr Example examples[] = {
      {"N=5,C=4,K=2,E=3,J=6,I=3", "", "gate_up_bias,down_bias"},
      {"N=2x2,C=3,K=1,E=4,J=10,I=5", "activation=\"gelu\",gate_first=false", "gate_up_bias,down_bias"},
      {"N=3,C=2,K=3,E=3,J=2,I=1", "activation=\"gelu_tanh\"", "gate_up_bias,down_bias"},
      {"N=5,C=4,K=2,E=3,J=6,I=3", "activation=\"swigluoai\",limit=1.5,interleaved=true,transposed=true"},
      {"N=6,C=4,E=3,J=6,I=3", "transposed=true", "index,weights,gate_up_bias,down_bias"},
      {"N=5,C=4,K=2,E=3,J=3,I=3", "gated=false,activation=\"relu_squared\"", "gate_up_bias,down_bias"}};
  static constexpr bool has_parts = true;
  static constexpr bool shares_steps = true;
  static constexpr Seen seen[] = {{"activation", "\"silu\"", "Mixtral, Qwen3-MoE, DeepSeek-V3"},
                                  {"activation", "\"gelu_tanh\"", "Gemma"},
                                  {"activation", "\"swigluoai\"", "gpt-oss"},
                                  {"activation", "\"relu_squared\"", "Nemotron-H"},
                                  {"activation", "\"relu\"", "Switch Transformers"},
                                  {"interleaved", "true", "gpt-oss"}};
  static constexpr Seen mistaken[] = {{"gate_first", "false", "gate and up exchanged"},
                                      {"activation", "\"gelu\"", "another activation"}};
  static constexpr RecordedAs recorded_as[] = {
      {"x", "hidden_states"},         {"index", "top_k_index"},       {"weights", "top_k_weights"},
      {"index", "router_indices"},    {"weights", "routing_weights"}, {"gate_up", "gate_up_proj"},
      {"gate_up", "up_proj"},         {"down", "down_proj"},          {"gate_up_bias", "gate_up_proj_bias"},
      {"down_bias", "down_proj_bias"}};

  static std::string_view shape_of(const Arg& arg, const Attributes& a) {
    if (!a.flag("transposed")) return arg.shape;
    return arg.shape == "E,J,C" ? "E,C,J" : arg.shape == "E,C,I" ? "E,I,C" : arg.shape;
  }

  static std::vector<std::int64_t> steps_apart(std::string_view output, const Shape& shape, const Dims&,
                                               const Attributes&) {
    return apart_by_token_or_expert(output, shape);
  }

  // Either shape alone may be both.
  static void infer(Recorded& call) {
    const Tensor *x = call.input("x"), *gate_up = call.input("gate_up"), *down = call.input("down");
    if (x == nullptr || x->shape().empty() || gate_up == nullptr || down == nullptr) return;
    const Shape &a = gate_up->shape(), &b = down->shape();
    const std::int64_t C = x->shape().back();
    const bool is_3d = a.size() == 3 && b.size() == 3;
    if (!is_3d) return;
    const auto is_transposed = [&](std::int64_t times) {
      return a[1] == C && b[2] == C && a[2] == times * b[1];
    };
    const auto is_apart = [&](std::int64_t times) { return a[2] == C && b[1] == C && a[1] == times * b[2]; };
    const bool gated = is_transposed(2) || is_apart(2);
    if (is_transposed(gated ? 2 : 1) && (gated || !is_apart(1))) call.attributes.set("transposed", true);
    if (!gated && (is_transposed(1) || is_apart(1))) call.attributes.set("gated", false);
  }

  static constexpr std::string_view activations[] = {"silu", "gelu",         "gelu_tanh",
                                                     "relu", "relu_squared", "swigluoai"};

  static void bind(Dims& d, InputShapes inputs, const Attributes& a) {
    const Shape &gate_up = shape_of_input(inputs, "gate_up"), &down = shape_of_input(inputs, "down");
    const std::size_t j = a.flag("transposed") ? 2 : 1, i = 3 - j;
    const bool gated = a.flag("gated");
    if (gate_up.size() == 3 && down.size() == 3 && gate_up[j] != (gated ? 2 : 1) * down[i]) {
      const char* J = gated ? "2I" : "I";
      throw Error(
          "moe_experts: gate_up has shape {}, down {}; expected {}", to_string(gate_up), to_string(down),
          j == 1 ? fmt::format("[E, {}, C] and [E, C, I]", J) : fmt::format("[E, C, {}] and [E, I, C]", J));
    }
    const InputShape* index = find_input(inputs, "index");
    const Shape& x = shape_of_input(inputs, "x");
    const std::int64_t E = gate_up.empty() ? 1 : gate_up[0],
                       tokens = x.empty() ? 0 : element_count({x.begin(), x.end() - 1});
    if (index == nullptr) {
      if (E == 0 || tokens % E != 0)
        throw Error("moe_experts: {} tokens without 'index'; expected as many for each of {} experts", tokens,
                    E);
      d.set("K", 1);
    }
    d.set("rows", index != nullptr ? element_count(index->shape) : tokens);
    if (const std::string& f = a.text("activation");
        std::ranges::find(activations, f) == std::end(activations) || (f == "swigluoai" && !gated))
      throw Error("moe_experts: activation is \"{}\"; expected {}, or with a gate swigluoai", f,
                  fmt::join(std::begin(activations), std::end(activations) - 1, ", "));
  }

  // f, and what it multiplies, with their slopes.
  template <class T>
  struct Unit {
    explicit Unit(const Attributes& attributes) : a(attributes), kind(a.text("activation")) {
      alpha = constant<T>(a.real("alpha"));
      limit = constant<T>(a.real("limit"));
    }
    T of_gate(const T& x) const {
      if (kind == "silu") return silu(x);
      if (kind == "swigluoai") return swish(minimum<T>(x, limit));
      if (kind == "relu") return maximum<T>(x, T(0));
      if (kind == "relu_squared") return square(stored(maximum<T>(x, T(0))));
      return GeluFunction<T>(name, kind == "gelu" ? "none" : "tanh")(x);
    }
    T slope_of_gate(const T& x) const {
      if (kind == "silu") return silu_slope(x);
      if (kind == "swigluoai") return inside(limit - x) * swish_slope(x);
      if (kind == "relu") return above(x);
      if (kind == "relu_squared") return T(2) * maximum<T>(x, T(0));
      return GeluFunction<T>(name, kind == "gelu" ? "none" : "tanh").slope(x);
    }
    T of_up(const T& x) const {
      if (kind != "swigluoai") return x;
      return stored(maximum<T>(minimum<T>(x, limit), -limit) + T(1));
    }
    T slope_of_up(const T& x) const { return kind == "swigluoai" ? inside(limit - abs(x)) : T(1); }

   private:
    // x sigmoid(alpha x) = silu(alpha x) / alpha
    T swish(const T& x) const { return x * stored(sigmoid(stored(alpha * x))); }
    T swish_slope(const T& x) const { return silu_slope(alpha * x); }
    static T square(const T& x) { return x * x; }
    static T above(const T& x) {
      return stepped<T>(x, [](double v) { return v > 0 ? 1. : 0.; });
    }
    static T inside(const T& room) {
      return stepped<T>(room, [](double r) { return r < 0 ? 0. : 1.; });
    }
    const Attributes& a;
    const std::string& kind;
    T alpha, limit;
  };

  // A token at one of its experts, with what kernels store between their steps.
  template <class T>
  struct Row {
    std::int64_t token, expert, place;
    std::vector<T> hidden;    // of J channels
    std::vector<T> unit;      // f(gate), of I channels
    std::vector<T> gated;     // f(gate) up; f(up) without a gate
    std::vector<T> out = {};  // of C channels, before its weight
  };

  template <class T>
  struct Experts {
    Experts(Tensors<T>& t, const Dims& d, const Attributes& a)
        : x(t["x"].data()),
          weights(t.optional("weights").data()),
          gate_up(t["gate_up"].data()),
          down(t["down"].data()),
          gate_up_bias(t.optional("gate_up_bias").data()),
          down_bias(t.optional("down_bias").data()),
          dropped(a.integer("dropped")),
          N(d.at("N")),
          K(d.at("K")),
          C(d.at("C")),
          I(d.at("I")),
          J(d.at("J")),
          unit(a),
          transposed(a.flag("transposed")),
          apart(a.flag("interleaved") ? 2 : 1),
          gate(a.flag("gate_first") ? 0
               : apart == 2         ? 1
                                    : I),
          up((apart == 2 ? 1 : I) - gate),
          is_gated(a.flag("gated")) {
      if (t.has("index")) {
        index = t.slot("index").indices;
      } else {
        const std::int64_t of_each = std::max<std::int64_t>(N / std::max<std::int64_t>(d.at("E"), 1), 1);
        for (std::int64_t n = 0; n < N; ++n) index.push_back(n / of_each);
      }
    }

    // Channel j of gate and up from channel c, and channel c of the result from channel i.
    std::int64_t of_gate_up(std::int64_t e, std::int64_t j, std::int64_t c) const {
      return e * J * C + (transposed ? c * J + j : j * C + c);
    }
    std::int64_t of_down(std::int64_t e, std::int64_t c, std::int64_t i) const {
      return e * C * I + (transposed ? i * C + c : c * I + i);
    }
    std::int64_t gate_at(std::int64_t i) const { return is_gated ? gate + i * apart : i; }
    std::int64_t up_at(std::int64_t i) const { return up + i * apart; }
    T weight(std::int64_t place) const { return weights != nullptr ? weights[place] : T(1); }

    Row<T> row(std::int64_t place) const {
      Row<T> r{place / K, index[static_cast<std::size_t>(place)], place, {}, {}, {}};
      const T* in = x + r.token * C;
      for (std::int64_t j = 0; j < J; ++j) {
        const T product =
            stored(sum<T>(C, [&](auto c) { return in[c] * gate_up[of_gate_up(r.expert, j, c)]; }));
        r.hidden.push_back(gate_up_bias != nullptr ? stored(product + gate_up_bias[r.expert * J + j])
                                                   : product);
      }
      for (std::int64_t i = 0; i < I; ++i) {
        r.unit.push_back(stored(unit.of_gate(at(r.hidden, gate_at(i)))));
        r.gated.push_back(is_gated ? stored(at(r.unit, i) * unit.of_up(at(r.hidden, up_at(i))))
                                   : at(r.unit, i));
      }
      for (std::int64_t c = 0; c < C; ++c) {
        const T product =
            stored(sum<T>(I, [&](auto i) { return at(r.gated, i) * down[of_down(r.expert, c, i)]; }));
        r.out.push_back(down_bias != nullptr ? stored(product + down_bias[r.expert * C + c]) : product);
      }
      return r;
    }
    static const T& at(const std::vector<T>& list, std::int64_t i) {
      return list[static_cast<std::size_t>(i)];
    }

    const T *x, *weights, *gate_up, *down, *gate_up_bias, *down_bias;
    std::vector<std::int64_t> index = {};
    std::int64_t dropped, N, K, C, I, J;
    Unit<T> unit;
    bool transposed;
    std::int64_t apart, gate, up;  // how far channels of the gate are from each other, and where they begin
    bool is_gated;
  };

  // What a token's experts add up to.
  template <class T>
  static T added_up(const std::vector<T>& terms) {
    return sum_in_memory<T>(static_cast<std::int64_t>(terms.size()),
                            [&](auto i) { return terms[static_cast<std::size_t>(i)]; });
  }

  // Calls f(token, the places of the token that have an expert).
  template <class T, class F>
  static void for_each_token(const Experts<T>& in, F f) {
    for (std::int64_t n = 0; n < in.N; ++n) {
      std::vector<std::int64_t> places;
      for (std::int64_t place = n * in.K; place < (n + 1) * in.K; ++place) {
        if (in.index[static_cast<std::size_t>(place)] != in.dropped) places.push_back(place);
      }
      f(n, places);
    }
  }

  template <class T>
  static void forward(Tensors<T>& t, const Dims& d, const Attributes& a) {
    if (!t.wants("y")) return;
    const Experts<T> in(t, d, a);
    T* y = t["y"].data();
    for_each_token(in, [&](std::int64_t n, const std::vector<std::int64_t>& places) {
      std::vector<std::vector<T>> terms(static_cast<std::size_t>(in.C));
      for (const std::int64_t place : places) {
        const Row<T> row = in.row(place);
        for (std::int64_t c = 0; c < in.C; ++c)
          terms[static_cast<std::size_t>(c)].push_back(stored(in.at(row.out, c) * in.weight(place)));
      }
      for (std::int64_t c = 0; c < in.C; ++c) y[n * in.C + c] = added_up(terms[static_cast<std::size_t>(c)]);
    });
  }

  // With g = weights grad_y: grad_gated = down^T g, grad_up = f(gate) grad_gated, grad_gate = f'(gate) up
  // grad_gated.
  template <class T>
  static std::vector<T> grad_hidden(const Experts<T>& in, const Row<T>& row, const std::vector<T>& g) {
    std::vector<T> grad(row.hidden.size());
    for (std::int64_t i = 0; i < in.I; ++i) {
      const T gated =
          stored(sum<T>(in.C, [&](auto c) { return in.at(g, c) * in.down[in.of_down(row.expert, c, i)]; }));
      const T& gate = in.at(row.hidden, in.gate_at(i));
      if (!in.is_gated) {
        grad[static_cast<std::size_t>(i)] = stored(gated * in.unit.slope_of_gate(gate));
        continue;
      }
      const T& up = in.at(row.hidden, in.up_at(i));
      grad[static_cast<std::size_t>(in.up_at(i))] =
          stored(stored(gated * in.at(row.unit, i)) * in.unit.slope_of_up(up));
      grad[static_cast<std::size_t>(in.gate_at(i))] =
          stored(stored(gated * in.unit.of_up(up)) * in.unit.slope_of_gate(gate));
    }
    return grad;
  }

  template <class T>
  static void backward(Tensors<T>& t, const Dims& d, const Attributes& a) {
    const Experts<T> in(t, d, a);
    const std::int64_t C = in.C, I = in.I;
    const T* grad_y = t["grad_y"].data();
    T *grad_x = t["grad_x"].data(), *grad_weights = t.optional("grad_weights").data();
    struct Kept {
      Row<T> row;
      std::vector<T> g, hidden;
    };
    std::vector<std::vector<Kept>> by_expert(static_cast<std::size_t>(d.at("E")));
    for_each_token(in, [&](std::int64_t n, const std::vector<std::int64_t>& places) {
      std::vector<std::vector<T>> terms(static_cast<std::size_t>(C));
      for (const std::int64_t place : places) {
        Kept kept{in.row(place), {}, {}};
        const T* from = grad_y + n * C;
        for (std::int64_t c = 0; c < C; ++c) kept.g.push_back(stored(from[c] * in.weight(place)));
        if (grad_weights != nullptr)
          grad_weights[place] = sum<T>(C, [&](auto c) { return stored(from[c] * in.at(kept.row.out, c)); });
        kept.hidden = grad_hidden(in, kept.row, kept.g);
        const std::int64_t e = kept.row.expert;
        for (std::int64_t c = 0; c < C; ++c) {
          terms[static_cast<std::size_t>(c)].push_back(stored(sum<T>(
              in.J, [&](auto j) { return in.at(kept.hidden, j) * in.gate_up[in.of_gate_up(e, j, c)]; })));
        }
        by_expert[static_cast<std::size_t>(kept.row.expert)].push_back(std::move(kept));
      }
      for (std::int64_t c = 0; c < C; ++c) grad_x[n * C + c] = added_up(terms[static_cast<std::size_t>(c)]);
    });
    T *grad_gate_up = t["grad_gate_up"].data(), *grad_down = t["grad_down"].data();
    T *grad_gate_up_bias = t.optional("grad_gate_up_bias").data(),
      *grad_down_bias = t.optional("grad_down_bias").data();
    for (std::size_t e = 0; e < by_expert.size(); ++e) {
      const std::vector<Kept>& rows_of = by_expert[e];
      const auto n = static_cast<std::int64_t>(rows_of.size()), expert = static_cast<std::int64_t>(e);
      const auto kept = [&](std::int64_t r) -> const Kept& { return rows_of[static_cast<std::size_t>(r)]; };
      for (std::int64_t j = 0; j < in.J; ++j) {
        if (grad_gate_up_bias != nullptr)
          grad_gate_up_bias[expert * in.J + j] = sum<T>(n, [&](auto r) { return in.at(kept(r).hidden, j); });
        for (std::int64_t c = 0; c < C; ++c)
          grad_gate_up[in.of_gate_up(expert, j, c)] =
              sum<T>(n, [&](auto r) { return in.at(kept(r).hidden, j) * in.x[kept(r).row.token * C + c]; });
      }
      for (std::int64_t c = 0; c < C; ++c) {
        if (grad_down_bias != nullptr)
          grad_down_bias[expert * C + c] = sum<T>(n, [&](auto r) { return in.at(kept(r).g, c); });
        for (std::int64_t i = 0; i < I; ++i)
          grad_down[in.of_down(expert, c, i)] =
              sum<T>(n, [&](auto r) { return in.at(kept(r).g, c) * in.at(kept(r).row.gated, i); });
      }
    }
  }
};

}  // namespace

namespace ops {
extern constexpr Operator moe_experts = describe<MoeExperts>();
}

}  // namespace assay
