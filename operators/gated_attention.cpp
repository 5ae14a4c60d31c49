#include "assay/operators/engine/softplus.h"
#include "assay/operators/engine/turned_heads.h"

namespace assay {
namespace {

// Letters as in rotary_attention. Y*: the channels of the gate, one for each of out, or one for each head, or
// those of q twice: of each head its q and then its gate, as one projection made them.
struct GatedAttention : TurnedHeads {
  static constexpr std::string_view name = "gated_attention";
  static constexpr std::string_view math =
      "out = attention(turn(q), turn(k), v) gating(gate); turn as in rotary_attention";
  static constexpr std::string_view source =
      "arXiv:2505.06708 sec. 2.2; Hugging Face transformers modeling_qwen3_next.py, modeling_afmoe.py, "
      "modeling_laguna.py";
  static constexpr Attribute attributes[] = {head_dim_attribute,
                                             heads_first_attribute,
                                             {"gating", "\"sigmoid\"", "sigmoid or softplus of the gate"},
                                             style_attribute,
                                             scale_attribute,
                                             causal_attribute,
                                             window_attribute,
                                             softcap_attribute,
                                             unseen_attribute,
                                             alibi_attribute,
                                             alibi_slopes_attribute,
                                             alibi_bias_max_attribute};
  static constexpr Arg args[] = {
      {"q", "B,L,Q*", Role::input},
      {"k", "B,L,K*", Role::input},
      {"v", "B,L,V*", Role::input},
      {"gate", "B,L,Y*", Role::input},
      {.name = "cos", .shape = "T*,C", .role = Role::input, .low = -1, .high = 1, .optional = true},
      {.name = "sin", .shape = "T*,C", .role = Role::input, .low = -1, .high = 1, .optional = true},
      mask_argument,
      {"grad_out", "B,L,O*", Role::grad_output},
      {.name = "out", .shape = "B,L,O*", .role = Role::output, .terms = "2 + D + L"},
      {.name = "grad_q", .shape = "B,L,Q*", .role = Role::grad_input, .terms = "2 + D + L + W"},
      {.name = "grad_k", .shape = "B,L,K*", .role = Role::grad_input, .terms = "2 + D + rows + W"},
      {.name = "grad_v", .shape = "B,L,V*", .role = Role::grad_input, .terms = "2 + D + rows"},
      {.name = "grad_gate", .shape = "B,L,Y*", .role = Role::grad_input, .terms = "2 + D + L + W"},
  };
  static constexpr Example examples[] = {
      {"B=2,L=3,Q=8,K=4,V=4,Y=8,T=3,C=2", "head_dim=4", "mask"},
      {"B=1,L=4,Q=2x6,K=1x6,V=3,Y=2,T=1x5x1,C=4", "gating=\"softplus\"", "mask"},
      {"B=2,L=3,Q=2x4,K=1x4,V=4,Y=16,T=1x3,C=2", "", "mask"},
      {"B=2,L=7,Q=2,K=1,D=2,V=3,Y=2x3,M=2x7", "heads_first=true", "cos,sin"}};
  static constexpr std::string_view functional_inputs[] = {"q", "k", "v", "gate", "cos", "sin", "mask"};
  static constexpr Seen seen[] = {{"gating", "\"softplus\"", "Laguna"},
                                  {"style", "\"interleaved\"", "Cohere, GPT-J"}};
  static constexpr Seen mistaken[] = {{"is_causal", "false", "a mask that is left out"},
                                      {"gating", "\"sigmoid\"", "another gate"},
                                      {"gating", "\"softplus\"", "another gate"},
                                      {"style", "\"half\"", "pairs of another layout"},
                                      {"style", "\"by_pair\"", "neighbours by the tables of halves"},
                                      {"window_size", "[-1, -1]", "a window that is left out"}};

  // Heads are known where q has them apart; else those of k must be whole, too.
  static bool may_gate(InputShapes inputs, std::int64_t gates) {
    const Shape &q = shape_of_input(inputs, "q"), &v = shape_of_input(inputs, "v");
    const bool heads_first = has_heads_first(q, v);
    const std::int64_t Q = channels_by(q, heads_first),
                       K = channels_by(shape_of_input(inputs, "k"), heads_first);
    if (Q == 0 || K == 0 || Q % K != 0) return false;
    if (gates == 2 * Q || gates == Q / K * channels_of(v)) return true;
    if (q.size() == 4) return gates == q[heads_first ? 1 : 2];
    return gates > 0 && Q % gates == 0 && K % (Q / gates) == 0;
  }
  static bool goes_with(InputShapes before, const InputShape& next) {
    return TurnedHeads::goes_with(before, next) &&
           (next.name != "gate" || may_gate(before, channels_of(next.shape)));
  }
  static bool may_make(InputShapes inputs, const Shape& out) {
    return TurnedHeads::may_make(inputs, out) &&
           may_gate(inputs, channels_of(shape_of_input(inputs, "gate")));
  }

  static void bind(Dims& d, InputShapes inputs, const Attributes& a) {
    bind_heads(name, d, inputs, a);
    const std::int64_t heads = d.at("heads"), gates = channels_of(shape_of_input(inputs, "gate"));
    if (gates != heads * d.at("W") && gates != 2 * heads * d.at("D") && gates != heads) {
      throw Error(
          "gated_attention: gate has {} channels; expected {}, one for each of out, or {}, one for each "
          "head, or "
          "{}, q's and the gate's by head",
          gates, heads * d.at("W"), heads, 2 * heads * d.at("D"));
    }
    if (a.text("gating") != "sigmoid" && a.text("gating") != "softplus")
      throw Error("gated_attention: gating is \"{}\"; expected sigmoid or softplus", a.text("gating"));
  }

  // Where in [B, L, Y] the gates of the heads are.
  struct Gates {
    Gates(const Dims& d, std::int64_t channels)
        : L(d.at("L")),
          heads(d.at("heads")),
          of_token(channels),
          of_head(channels == heads ? 1 : d.at("W")),
          stride(channels / heads),
          first(channels == heads || channels == heads * d.at("W") ? 0 : d.at("D")) {}
    /// Of a channel of out, by head: element i of [B, heads, L, W].
    std::int64_t operator()(std::int64_t i, std::int64_t W) const {
      const std::int64_t row = i / W, head = row / L % heads;
      return (row / L / heads * L + row % L) * of_token + head * stride + first + (of_head == 1 ? 0 : i % W);
    }
    std::int64_t L, heads, of_token, of_head, stride, first;
  };

  template <class T>
  static T gated(const T& x, bool is_softplus) {
    return is_softplus ? softplus(x) : sigmoid(x);
  }
  template <class T>
  static T slope(const T& x, bool is_softplus) {
    return is_softplus ? softplus_slope(x) : sigmoid_slope(x);
  }

  // [B, heads, L, W]: the stored gate of each channel of out.
  template <class T>
  static std::vector<T> gates_of(Tensors<T>& t, const Dims& d, const Attributes& a, std::size_t size) {
    const Gates at(d, channels_of(t.shape("gate")));
    const bool is_softplus = a.text("gating") == "softplus";
    const T* gate = t["gate"].data();
    return terms_of<T>(static_cast<std::int64_t>(size),
                       [&](auto i) { return stored(gated(gate[at(i, d.at("W"))], is_softplus)); });
  }
  template <class T>
  static void give_gated(Tensors<T>& t, const Dims& d, std::vector<T> out, const std::vector<T>& gates) {
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = stored(out[i]) * gates[i];
    give_out(t, d, out);
  }

  template <class T>
  static void forward(Tensors<T>& t, const Dims& d, const Attributes& a) {
    if (t.has("grad_out")) return;  // backward makes it on its way
    InnerAttention<T> inner = attention(t, d, a);
    inner.run();
    give_gated(t, d, inner.made("out"), gates_of(t, d, a, inner.made("out").size()));
  }

  template <class T>
  static void backward(Tensors<T>& t, const Dims& d, const Attributes& a) {
    const std::int64_t W = d.at("W");
    InnerAttention<T> inner = attention(t, d, a);
    const std::vector<T> upstream = by_head(t["grad_out"].data(), d, d.at("heads"), W, false),
                         gates = gates_of(t, d, a, upstream.size());
    inner.take_gradient(terms_of<T>(std::ssize(upstream), [&](auto i) {
      return stored(upstream[static_cast<std::size_t>(i)] * gates[static_cast<std::size_t>(i)]);
    }));
    inner.run();
    give_gradients(t, d, a, inner);
    give_gate_gradient(t, d, a, upstream, inner.kept("out"));
    give_gated(t, d, inner.made("out"), gates);
  }

  template <class T>
  static void give_gate_gradient(Tensors<T>& t, const Dims& d, const Attributes& a,
                                 const std::vector<T>& upstream, const std::vector<T>& out) {
    const std::int64_t W = d.at("W");
    const Gates at(d, channels_of(t.shape("gate")));
    const bool is_softplus = a.text("gating") == "softplus";
    const T* gate = t["gate"].data();
    T* grad = t["grad_gate"].data();
    // Of one head at one token: a gate for each channel, or the sum of one for all.
    const auto term = [&](std::int64_t i) {
      return stored(upstream[static_cast<std::size_t>(i)] * out[static_cast<std::size_t>(i)]);
    };
    for (std::int64_t i = 0; i < std::ssize(out); i += at.of_head == 1 ? W : 1) {
      const T g = at.of_head == 1 ? stored(sum<T>(W, [&](auto c) { return term(i + c); })) : term(i);
      grad[at(i, W)] = g * slope(gate[at(i, W)], is_softplus);
    }
  }
};

}  // namespace

namespace ops {
extern constexpr Operator gated_attention = describe<GatedAttention>();
}

}  // namespace assay
