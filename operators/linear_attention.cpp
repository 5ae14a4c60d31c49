#include <algorithm>
#include <type_traits>

#include "assay/golden/error.h"
#include "assay/operators/engine/chunked_decays.h"
#include "assay/operators/engine/linear_head.h"

namespace assay {
namespace {

// T tokens; H heads of q, K of k, G of v and of the state, D and V the widths of keys and values. The output
// has O = max(H, G) heads; where fewer heads meet more, each serves a run of neighbours. E*: the channels of
// the decay, none for one number a head. F: G, or 1 beta for all heads.
// The bound is that of the recurrence, and of decays as chunked kernels have them. Such a kernel of the delta
// rule solves a triangular system, too, whose error for ill-conditioned keys may be larger.
struct LinearAttention {
  static constexpr std::string_view name = "linear_attention";
  static constexpr std::string_view math =
      "S_t = S' + k_t u_t^T, out_t = scale S_t^T q_t, where S' = exp(decay_t) S_(t-1), u_t = v_t, or with "
      "beta "
      "u_t = beta_t (v_t - S'^T k_t)";
  static constexpr std::string_view source =
      "arXiv:2006.16236 eq. 18 to 20; gates arXiv:2312.06635 eq. 3; delta rule arXiv:2406.06484 sec. 2.2, "
      "gated "
      "arXiv:2412.06464 eq. 10; names of ONNX LinearAttention";
  static constexpr std::string_view aliases[] = {"LinearAttention",
                                                 "fused_recurrent_gated_delta_rule",
                                                 "chunk_gated_delta_rule",
                                                 "chunk_delta_rule",
                                                 "chunk_gla",
                                                 "chunk_simple_gla"};
  static constexpr Attribute attributes[] = {
      {"scale", "null", "factor of the output; null: 1 / sqrt(D)"},
      {"update_rule", "null",
       "linear, gated (needs decay), delta (needs beta) or gated_delta (both); null: what is given decides"},
      {"q_num_heads", "null", "heads of q, where heads and channels are one dimension: [B, T, H D]"},
      {"kv_num_heads", "null", "heads of k and v likewise"}};
  static constexpr Arg args[] = {
      {"q", "B*,T,H,D", Role::input},
      {"k", "B*,T,K,D", Role::input, -1, 1},
      {"v", "B*,T,G,V", Role::input},
      {.name = "past_state", .shape = "B*,G,D,V", .role = Role::input, .optional = true},
      // exp(decay) is finite below log(FLT_MAX)
      {.name = "decay",
       .shape = "B*,T,G,E*",
       .role = Role::input,
       .low = -2,
       .high = 0,
       .optional = true,
       .domain = {-0x1p63, 88.7}},
      {.name = "beta", .shape = "B*,T,F", .role = Role::input, .low = 0, .high = 1, .optional = true},
      {"grad_out", "B*,T,O,V", Role::grad_output},
      {.name = "grad_present_state", .shape = "B*,G,D,V", .role = Role::grad_output, .optional = true},
      {.name = "out", .shape = "B*,T,O,V", .role = Role::output, .terms = "D + chain"},
      {.name = "present_state", .shape = "B*,G,D,V", .role = Role::output, .terms = "chain"},
      {.name = "grad_q", .shape = "B*,T,H,D", .role = Role::grad_input, .terms = "V copies_q + chain"},
      {.name = "grad_k", .shape = "B*,T,K,D", .role = Role::grad_input, .terms = "V copies_k + chains"},
      {.name = "grad_v", .shape = "B*,T,G,V", .role = Role::grad_input, .terms = "D + chain"},
      {.name = "grad_past_state",
       .shape = "B*,G,D,V",
       .role = Role::grad_input,
       .optional = true,
       .terms = "chain"},
      {.name = "grad_decay",
       .shape = "B*,T,G,E*",
       .role = Role::grad_input,
       .optional = true,
       .terms = "V summed + chain + chain"},
      {.name = "grad_beta",
       .shape = "B*,T,F",
       .role = Role::grad_input,
       .optional = true,
       .terms = "V copies_b + D + chains"},
  };
  static constexpr Example examples[] = {
      {"B=2,T=3,H=2,D=3,K=1,G=1,V=1", "", "past_state,decay,beta"},
      {"B=1,T=4,H=1,D=2,K=1,G=2,V=1,E=,F=2", "update_rule=\"gated_delta\""},
      {"B=1,T=2,Q=4,D=2,C=2,K=1,G=1,V=3,W=3,Y=2", "q_num_heads=2,kv_num_heads=1", "beta,grad_present_state"},
      {"B=,T=3,H=2,D=2,K=1,G=2,V=1,F=1", "scale=1,update_rule=\"delta\"", "decay,past_state"}};

  // Q, C and W are H D, K D and G V in one dimension.
  static std::string_view shape_of(const Arg& arg, const Attributes& a) {
    if (!a.has("q_num_heads") && !a.has("kv_num_heads")) return arg.shape;
    const std::string_view name = arg.name.starts_with("grad_") ? arg.name.substr(5) : arg.name;
    if (name == "q") return "B*,T,Q";
    if (name == "k") return "B*,T,C";
    if (name == "v") return "B*,T,W";
    if (name == "out") return "B*,T,X";
    if (name == "decay") return "B*,T,Y";
    return arg.shape;
  }

  static void bind(Dims& d, InputShapes inputs, const Attributes& a) {
    const Shape& q = shape_of_input(inputs, "q");
    const bool packed = a.has("q_num_heads") || a.has("kv_num_heads");
    if (packed && !(a.has("q_num_heads") && a.has("kv_num_heads"))) {
      throw Error("linear_attention: q_num_heads and kv_num_heads belong together");
    }
    const std::size_t own = packed ? 2 : 3;  // dimensions behind the batch
    for (const auto& [name, heads, width] :
         {std::array<std::string_view, 3>{"q", "H", "D"}, {"k", "K", "D"}, {"v", "G", "V"}}) {
      const Shape& x = shape_of_input(inputs, name);
      if (x.size() != q.size()) {
        throw Error("linear_attention: '{}' has shape {}; expected [B, T, {}]", name, to_string(x),
                    packed ? "heads channels" : "heads, channels");
      }
      std::int64_t n = x[x.size() - 2], channels = x.back();
      if (packed) {
        n = a.integer(name == "q" ? "q_num_heads" : "kv_num_heads");
        if (n < 1 || channels % n != 0) {
          throw Error("linear_attention: '{}' has {} channels for {} heads", name, channels, n);
        }
        channels /= n;
      }
      d.set(heads, n);
      if (name == "k" && channels != d.at("D")) {
        throw Error("linear_attention: heads of q have {} channels, of k {}", d.at("D"), channels);
      }
      d.set(width, channels);
    }
    d.set("B", Shape(q.begin(), q.end() - static_cast<std::ptrdiff_t>(own)));
    d.set("T", q[q.size() - own]);
    const std::int64_t H = d.at("H"), K = d.at("K"), G = d.at("G"), O = std::max(H, G);
    if (H == 0 || K == 0 || G == 0 || O % H != 0 || O % G != 0 || G % K != 0) {
      throw Error(
          "linear_attention: {} heads of q, {} of k, {} of v; those of k must divide those of v, and of "
          "q and v one the other",
          H, K, G);
    }
    d.set("O", O);
    d.set("X", O * d.at("V"));
    bind_gates(d, inputs, a);
    // One step's update sums over no channel, or with beta over D.
    d.set("chain", d.at("T") * (find_input(inputs, "beta") != nullptr ? d.at("D") : 1));
    d.set("chains", find_input(inputs, "beta") != nullptr ? 2 * d.at("chain") : d.at("chain"));
    d.set("copies_q", O / H);
    d.set("copies_k", G / K);
  }

  static void bind_gates(Dims& d, InputShapes inputs, const Attributes& a) {
    const InputShape *decay = find_input(inputs, "decay"), *beta = find_input(inputs, "beta");
    const std::string rule = a.has("update_rule") ? a.text("update_rule") : "";
    if (rule != "" && rule != "linear" && rule != "gated" && rule != "delta" && rule != "gated_delta") {
      throw Error("linear_attention: update_rule is \"{}\"; expected linear, gated, delta or gated_delta",
                  rule);
    }
    if (rule != "" &&
        (rule.starts_with("gated") != (decay != nullptr) || rule.ends_with("delta") != (beta != nullptr))) {
      throw Error("linear_attention: the rule \"{}\" does not go {} decay and {} beta", rule,
                  decay != nullptr ? "with" : "without", beta != nullptr ? "with" : "without");
    }
    const std::int64_t G = d.at("G"), D = d.at("D");
    d.set("Y", a.has("q_num_heads") && decay != nullptr && !decay->shape.empty() ? decay->shape.back() : G);
    const bool channels = a.has("q_num_heads")
                              ? d.at("Y") != G || D == 1
                              : decay != nullptr && decay->shape.size() == d.extents("B").size() + 3;
    d.set("E", channels ? Shape{D} : Shape());
    if (decay != nullptr && d.at("Y") != G && d.at("Y") != G * D) {
      throw Error(
          "linear_attention: decay has {} channels; expected one for each of {} heads, or {} for each",
          d.at("Y"), G, D);
    }
    d.set("summed", channels ? 1 : D);
    d.set("F", beta != nullptr && !beta->shape.empty() ? beta->shape.back() : G);
    if (beta != nullptr && d.at("F") != 1 && d.at("F") != G) {
      throw Error("linear_attention: beta has {} heads; expected {} or 1", d.at("F"), G);
    }
    d.set("copies_b", G / std::max<std::int64_t>(d.at("F"), 1));
  }

  // As chunked kernels may have them.
  template <class T>
  static std::vector<T> decays_of(Tensors<T>& t, const Dims& d) {
    if (!t.has("decay")) return {};
    const std::int64_t per_token = d.at("B") * d.at("T");
    const std::vector<T>& given = t.slot("decay").values;
    return decays_of_chunks(given, d.at("T"), per_token == 0 ? 0 : std::ssize(given) / per_token);
  }

  template <class T>
  static void forward(Tensors<T>& t, const Dims& d, const Attributes& a) {
    const std::vector<T> decays = decays_of(t, d);
    for (std::int64_t b = 0; b < d.at("B"); ++b) {
      for (std::int64_t g = 0; g < d.at("G"); ++g) {
        const LinearHead<T> h(t, d, a, decays, b, g);
        const auto states = h.states();
        T* out = t["out"].data();
        for (std::int64_t n = 0; n < h.tokens; ++n) {
          const std::vector<T>& s = states[static_cast<std::size_t>(n + 1)];
          for (std::int64_t o = g * h.O / h.G; o < (g + 1) * h.O / h.G; ++o) {
            for (std::int64_t c = 0; c < h.V; ++c) {
              out[h.out_at(n, o) + c] = sum<T>(h.D, [&](auto i) {
                return h.q[h.q_at(n, o) + i] * h.scale * s[static_cast<std::size_t>(i * h.V + c)];
              });
            }
          }
        }
        std::copy(states.back().begin(), states.back().end(), t["present_state"].data() + h.state_at());
      }
    }
  }

  // R, the gradient of the state, runs from the last token to the first:
  // R += scale q g^T, du = R^T k, dk = R u; with beta du = beta du', and S' and k get the gradient of -S'^T
  // k.
  template <class T>
  static void backward(Tensors<T>& t, const Dims& d, const Attributes& a) {
    const std::vector<T> decays = decays_of(t, d);
    for (std::int64_t b = 0; b < d.at("B"); ++b) {
      for (std::int64_t g = 0; g < d.at("G"); ++g) backward_of_head<T>(LinearHead<T>(t, d, a, decays, b, g));
    }
  }

  // Of token n: the state behind it and as it met it, the gradient of the state behind it, all of it and that
  // of later tokens, what it wrote and the gradient of that.
  struct AtToken {
    const std::vector<Bound>&state, &before, &R, &later, &u, &du;
  };
  // What it hands back to the logarithm of its factor in channel i: as a query, as it writes, and as its key
  // meets what is there.
  static GradientsOfChunks::OfToken of_logarithm(const LinearHead<Bound>& h, const AtToken& at,
                                                 std::int64_t n, std::int64_t i) {
    const auto size = [](const std::vector<Bound>& list, std::int64_t j) {
      return std::abs(list[static_cast<std::size_t>(j)].value);
    };
    const Bound* g = h.tensors["grad_out"].data();
    const double key = std::abs(h.k[h.k_at(n) + i].value);
    GradientsOfChunks::OfToken of_token = {};
    for (std::int64_t c = 0; c < h.V; ++c) {
      const double state = size(at.state, i * h.V + c), gradient = size(at.R, i * h.V + c);
      for (std::int64_t o = h.g * h.O / h.G; o < (h.g + 1) * h.O / h.G; ++o)
        of_token.handed_back +=
            std::abs(h.scale.value * h.q[h.q_at(n, o) + i].value * g[h.out_at(n, o) + c].value) * state;
      of_token.handed_back += key * size(at.u, c) * gradient;
      if (h.beta != nullptr) of_token.handed_back += key * size(at.du, c) * size(at.before, i * h.V + c);
      of_token.carried += size(at.later, i * h.V + c) * state;
    }
    return of_token;
  }

  template <class T>
  static void backward_of_head(const LinearHead<T>& h) {
    Tensors<T>& t = h.tensors;
    const std::int64_t D = h.D, V = h.V;
    const auto states = h.states();
    const T* g = t["grad_out"].data();
    T *grad_q = t["grad_q"].data(), *grad_k = t["grad_k"].data(), *grad_v = t["grad_v"].data();
    std::vector<T> R(static_cast<std::size_t>(D * V), T(0));
    if (const auto last = t.optional("grad_present_state")) {
      std::copy(last.data() + h.state_at(), last.data() + h.state_at() + D * V, R.begin());
    }
    ErrorsOfColumns<T> errors(R, V);
    std::vector<GradientsOfChunks> in_chunks(static_cast<std::size_t>(D), GradientsOfChunks(D + V));
    const auto at = [&](std::vector<T>& matrix, std::int64_t i, std::int64_t c) -> T& {
      return matrix[static_cast<std::size_t>(i * V + c)];
    };
    for (std::int64_t n = h.tokens - 1; n >= 0; --n) {
      std::vector<T> state = states[static_cast<std::size_t>(n + 1)];
      const T* k = h.k + h.k_at(n);
      const std::vector<T> later = R;
      for (std::int64_t o = h.g * h.O / h.G; o < (h.g + 1) * h.O / h.G; ++o) {
        const T *q = h.q + h.q_at(n, o), *upstream = g + h.out_at(n, o);
        for (std::int64_t i = 0; i < D; ++i)
          grad_q[h.q_at(n, o) + i] +=
              h.scale * sum<T>(V, [&](auto c) { return at(state, i, c) * upstream[c]; });
        const auto added = [&](std::vector<T> sum) {
          for (std::int64_t i = 0; i < D; ++i) {
            for (std::int64_t c = 0; c < V; ++c) at(sum, i, c) += h.scale * q[i] * upstream[c];
          }
          return sum;
        };
        R = errors.step(R, added, 1 + ErrorScope::current().unit_roundoff);
      }
      std::vector<T> before = h.decayed(states[static_cast<std::size_t>(n)], n), du, u;
      for (std::int64_t c = 0; c < V; ++c) {
        du.push_back(sum<T>(D, [&](auto i) { return at(R, i, c) * k[i]; }));
        u.push_back(h.update(before, n, c));
      }
      const auto of = [](const std::vector<T>& list, std::int64_t c) {
        return list[static_cast<std::size_t>(c)];
      };
      for (std::int64_t i = 0; i < D; ++i) {
        grad_k[h.k_at(n) + i] += sum<T>(V, [&](auto c) { return at(R, i, c) * of(u, c); });
      }
      if (h.beta != nullptr) {
        t["grad_beta"].data()[h.beta_at(n)] +=
            sum<T>(V, [&](auto c) { return of(du, c) * h.surprise(before, n, c); });
        for (T& x : du) x *= h.beta[h.beta_at(n)];
        for (std::int64_t i = 0; i < D; ++i)
          grad_k[h.k_at(n) + i] -= sum<T>(V, [&](auto c) { return at(before, i, c) * of(du, c); });
      }
      for (std::int64_t c = 0; c < V; ++c) grad_v[h.v_at(n) + c] = of(du, c);
      if (h.decay != nullptr) {
        std::vector<T> reached = h.without_written(R, n);
        T* grad_decay = t["grad_decay"].data();
        for (std::int64_t i = 0; i < D; ++i) {
          grad_decay[h.decay_at(n, i)] +=
              sum<T>(V, [&](auto c) { return at(reached, i, c) * at(before, i, c); });
          if constexpr (std::is_same_v<T, Bound>) {
            if (!ErrorScope::current().own)
              grad_decay[h.decay_at(n, i)].error += in_chunks[static_cast<std::size_t>(i)].add(
                  of_logarithm(h, {state, before, R, later, u, du}, n, i));
          }
        }
      }
      R = errors.step(
          R, [&](const std::vector<T>& now) { return h.decayed(h.without_written(now, n), n); }, h.growth(n));
    }
    if (const auto past = t.optional("grad_past_state"))
      std::copy(R.begin(), R.end(), past.data() + h.state_at());
  }
};

}  // namespace

namespace ops {
extern constexpr Operator linear_attention = describe<LinearAttention>();
}

}  // namespace assay
