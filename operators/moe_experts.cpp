#include <string>
#include <vector>

#include "assay/golden/error.h"
#include "assay/operators/engine/gelu.h"
#include "assay/operators/engine/list.h"

namespace assay {
namespace {

// N* tokens of C channels, of which each goes to K of E experts with I channels inside. J = 2I: gate and up
// side by side. "rows": the choices of all tokens.
struct MoeExperts {
  static constexpr std::string_view name = "moe_experts";
  static constexpr std::string_view math =
      "y_t = sum over k of weights_tk down_e (f(gate_e x_t) up_e x_t), e = index_tk";
  static constexpr std::string_view source =
      "arXiv:2401.04088 eq. 2; Hugging Face transformers 5 MixtralExperts, Qwen3MoeExperts; gated units "
      "arXiv:2002.05202 eq. 6";
  static constexpr std::string_view aliases[] = {"MixtralExperts", "Qwen3MoeExperts"};
  static constexpr Attribute attributes[] = {
      {"activation", "\"silu\"", "f: silu, gelu (by erf) or gelu_tanh"},
      {"gate_first", "true", "the first I rows of gate_up are the gate; false: the last"},
      {"dropped", "-1", "the index of a choice that no expert gets"}};
  static constexpr Arg args[] = {
      {"x", "N*,C", Role::input},
      {.name = "index", .shape = "N*,K", .role = Role::index, .indexes = "E", .except = "dropped"},
      {.name = "weights", .shape = "N*,K", .role = Role::input, .low = 0, .high = 1},
      {"gate_up", "E,J,C", Role::param},
      {"down", "E,C,I", Role::param},
      {"grad_y", "N*,C", Role::grad_output},
      {.name = "y", .shape = "N*,C", .role = Role::output, .terms = "C + I + K"},
      {.name = "grad_x", .shape = "N*,C", .role = Role::grad_input, .terms = "C + C + J + K"},
      {.name = "grad_weights", .shape = "N*,K", .role = Role::grad_input, .terms = "C + I + C"},
      {.name = "grad_gate_up", .shape = "E,J,C", .role = Role::grad_input, .terms = "C + C + rows"},
      {.name = "grad_down", .shape = "E,C,I", .role = Role::grad_input, .terms = "C + rows"},
  };
  static constexpr Example examples[] = {
      {"N=5,C=4,K=2,E=3,J=6,I=3"},
      {"N=2x2,C=3,K=1,E=4,J=10,I=5", "activation=\"gelu\",gate_first=false"},
      {"N=3,C=2,K=3,E=3,J=2,I=1", "activation=\"gelu_tanh\""}};
  static constexpr bool has_parts = true;
  static constexpr bool shares_steps = true;
  static constexpr Seen seen[] = {{"activation", "\"silu\"", "Mixtral, Qwen3-MoE, DeepSeek-V3"},
                                  {"activation", "\"gelu_tanh\"", "Gemma"}};
  static constexpr Seen mistaken[] = {{"gate_first", "false", "gate and up exchanged"},
                                      {"activation", "\"gelu\"", "another activation"}};
  static constexpr RecordedAs recorded_as[] = {{"x", "hidden_states"},
                                               {"index", "top_k_index"},
                                               {"weights", "top_k_weights"},
                                               {"gate_up", "gate_up_proj"},
                                               {"down", "down_proj"}};

  static void bind(Dims& d, InputShapes inputs, const Attributes& a) {
    const Shape &gate_up = shape_of_input(inputs, "gate_up"), &down = shape_of_input(inputs, "down");
    if (gate_up.size() == 3 && down.size() == 3 && gate_up[1] != 2 * down[2]) {
      throw Error("moe_experts: gate_up has shape {}, down {}; expected [E, 2I, C] and [E, C, I]",
                  to_string(gate_up), to_string(down));
    }
    d.set("rows", element_count(shape_of_input(inputs, "index")));
    if (const std::string& f = a.text("activation"); f != "silu" && f != "gelu" && f != "gelu_tanh")
      throw Error("moe_experts: activation is \"{}\"; expected silu, gelu or gelu_tanh", f);
  }

  template <class T>
  static T activation(const Attributes& a, const T& x) {
    if (a.text("activation") == "silu") return silu(x);
    return GeluFunction<T>(name, a.text("activation") == "gelu" ? "none" : "tanh")(x);
  }
  template <class T>
  static T slope(const Attributes& a, const T& x) {
    if (a.text("activation") == "silu") return silu_slope(x);
    return GeluFunction<T>(name, a.text("activation") == "gelu" ? "none" : "tanh").slope(x);
  }

  // A token at one of its experts, with what kernels store between their steps.
  template <class T>
  struct Row {
    std::int64_t token, expert, place;
    std::vector<T> hidden;    // of J channels
    std::vector<T> unit;      // f(gate), of I channels
    std::vector<T> gated;     // f(gate) up
    std::vector<T> out = {};  // of C channels, before its weight
  };

  template <class T>
  struct Experts {
    Experts(Tensors<T>& t, const Dims& d, const Attributes& attributes)
        : x(t["x"].data()),
          weights(t["weights"].data()),
          gate_up(t["gate_up"].data()),
          down(t["down"].data()),
          index(t.slot("index").indices),
          dropped(attributes.integer("dropped")),
          N(d.at("N")),
          K(d.at("K")),
          C(d.at("C")),
          I(d.at("I")),
          a(attributes),
          gate(a.flag("gate_first") ? 0 : I),
          up(I - gate) {}

    const T* expert_gate_up(std::int64_t e) const { return gate_up + e * 2 * I * C; }
    const T* expert_down(std::int64_t e) const { return down + e * C * I; }

    Row<T> row(std::int64_t place) const {
      Row<T> r{place / K, index[static_cast<std::size_t>(place)], place, {}, {}, {}};
      const T *in = x + r.token * C, *w = expert_gate_up(r.expert), *v = expert_down(r.expert);
      for (std::int64_t j = 0; j < 2 * I; ++j)
        r.hidden.push_back(stored(sum<T>(C, [&](auto c) { return in[c] * w[j * C + c]; })));
      for (std::int64_t i = 0; i < I; ++i) {
        r.unit.push_back(stored(activation(a, at(r.hidden, gate + i))));
        r.gated.push_back(stored(at(r.unit, i) * at(r.hidden, up + i)));
      }
      for (std::int64_t c = 0; c < C; ++c)
        r.out.push_back(stored(sum<T>(I, [&](auto i) { return at(r.gated, i) * v[c * I + i]; })));
      return r;
    }
    static const T& at(const std::vector<T>& list, std::int64_t i) {
      return list[static_cast<std::size_t>(i)];
    }

    const T *x, *weights, *gate_up, *down;
    const std::vector<std::int64_t>& index;
    std::int64_t dropped, N, K, C, I;
    const Attributes& a;
    std::int64_t gate, up;  // where they begin among the hidden channels
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
          terms[static_cast<std::size_t>(c)].push_back(stored(in.at(row.out, c) * in.weights[place]));
      }
      for (std::int64_t c = 0; c < in.C; ++c) y[n * in.C + c] = added_up(terms[static_cast<std::size_t>(c)]);
    });
  }

  // With g = weights grad_y: grad_gated = down^T g, grad_up = f(gate) grad_gated, grad_gate = f'(gate) up
  // grad_gated.
  template <class T>
  static std::vector<T> grad_hidden(const Experts<T>& in, const Row<T>& row, const std::vector<T>& g) {
    const T* v = in.expert_down(row.expert);
    std::vector<T> grad(row.hidden.size());
    for (std::int64_t i = 0; i < in.I; ++i) {
      const T gated = stored(sum<T>(in.C, [&](auto c) { return in.at(g, c) * v[c * in.I + i]; }));
      grad[static_cast<std::size_t>(in.up + i)] = stored(gated * in.at(row.unit, i));
      grad[static_cast<std::size_t>(in.gate + i)] =
          stored(stored(gated * in.at(row.hidden, in.up + i)) * slope(in.a, in.at(row.hidden, in.gate + i)));
    }
    return grad;
  }

  template <class T>
  static void backward(Tensors<T>& t, const Dims& d, const Attributes& a) {
    const Experts<T> in(t, d, a);
    const std::int64_t C = in.C, I = in.I;
    const T* grad_y = t["grad_y"].data();
    T *grad_x = t["grad_x"].data(), *grad_weights = t["grad_weights"].data();
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
        for (std::int64_t c = 0; c < C; ++c) kept.g.push_back(stored(from[c] * in.weights[place]));
        grad_weights[place] = sum<T>(C, [&](auto c) { return stored(from[c] * in.at(kept.row.out, c)); });
        kept.hidden = grad_hidden(in, kept.row, kept.g);
        const T* w = in.expert_gate_up(kept.row.expert);
        for (std::int64_t c = 0; c < C; ++c) {
          terms[static_cast<std::size_t>(c)].push_back(
              stored(sum<T>(2 * I, [&](auto j) { return in.at(kept.hidden, j) * w[j * C + c]; })));
        }
        by_expert[static_cast<std::size_t>(kept.row.expert)].push_back(std::move(kept));
      }
      for (std::int64_t c = 0; c < C; ++c) grad_x[n * C + c] = added_up(terms[static_cast<std::size_t>(c)]);
    });
    T *grad_gate_up = t["grad_gate_up"].data(), *grad_down = t["grad_down"].data();
    for (std::size_t e = 0; e < by_expert.size(); ++e) {
      const std::vector<Kept>& rows_of = by_expert[e];
      const auto n = static_cast<std::int64_t>(rows_of.size()), expert = static_cast<std::int64_t>(e);
      const auto kept = [&](std::int64_t r) -> const Kept& { return rows_of[static_cast<std::size_t>(r)]; };
      for (std::int64_t j = 0; j < 2 * I; ++j) {
        for (std::int64_t c = 0; c < C; ++c)
          grad_gate_up[(expert * 2 * I + j) * C + c] =
              sum<T>(n, [&](auto r) { return in.at(kept(r).hidden, j) * in.x[kept(r).row.token * C + c]; });
      }
      for (std::int64_t c = 0; c < C; ++c) {
        for (std::int64_t i = 0; i < I; ++i)
          grad_down[(expert * C + c) * I + i] =
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
