#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "assay/golden/error.h"
#include "assay/operators/engine/recorded.h"
#include "assay/operators/engine/rotary_attention.h"
#include "assay/operators/engine/wrong_windows.h"

namespace assay {
namespace {

// B sequences of L tokens. Q*, K*, V*, O*: channels, of all heads side by side or by head; heads have D of
// them in q and k, W in v and out. The first R of D turn, by the first L rows of tables [B, M, C], or [M, C]
// for all sequences alike, with extents of 1 anywhere in T*; without tables none does. C is R, or R/2 where a
// pair has one column. cis: cos + i sin of C = R/2 pairs (2i, 2i + 1), U = 2 numbers for each, whatever the
// style. Z: the heads of q. mask: which keys are there.
struct RotaryAttention {
  static constexpr std::string_view name = "rotary_attention";
  static constexpr std::string_view math =
      "out = attention(turn(q), turn(k), v, sink), turn(x) = x cos + swap(x) sin; swap(x) = (-x_j, x_i) in "
      "each pair";
  static constexpr std::string_view source =
      "arXiv:2104.09864 eq. 34, arXiv:1706.03762 eq. 1; sink arXiv:2508.10925; Hugging Face "
      "transformers apply_rotary_pos_emb and "
      "eager_attention_forward";
  static constexpr Attribute attributes[] = {
      {"head_dim", "null", "D; null: the last extent of q where it is given by head, else R"},
      {"heads_first", "false", "q and k are [B, heads, L, D]"},
      {"style", "\"half\"",
       "pairs are half: (i, i + R/2), or interleaved: (2i, 2i + 1), or by_pair: those of interleaved, pair i "
       "by column i of the tables; half_of_pairs and interleaved_of_pairs: tables have a column for each "
       "pair, R/2"},
      {"scale", "null", "factor of q k^T; null: 1 / sqrt(D)"},
      {"is_causal", "true", "a query does not see the keys behind it"},
      {"window_size", "[-1, -1]", "keys seen left and right of a query; -1: no limit"},
      {"softcap", "0", "c: scores are c tanh(scale q k^T / c); 0: no cap"},
      unseen_attribute,
      alibi_attribute,
      alibi_slopes_attribute,
      alibi_bias_max_attribute};
  static constexpr Arg args[] = {
      {"q", "B,L,Q*", Role::input},
      {"k", "B,L,K*", Role::input},
      {"v", "B,L,V*", Role::input},
      {.name = "cos", .shape = "T*,C", .role = Role::input, .low = -1, .high = 1, .optional = true},
      {.name = "sin", .shape = "T*,C", .role = Role::input, .low = -1, .high = 1, .optional = true},
      {.name = "cis", .shape = "T*,C,U", .role = Role::input, .low = -1, .high = 1, .optional = true},
      {.name = "sink", .shape = "Z", .role = Role::param, .optional = true},
      mask_argument,
      {"grad_out", "B,L,O*", Role::grad_output},
      {.name = "out", .shape = "B,L,O*", .role = Role::output, .terms = "2 + D + L"},
      {.name = "grad_q", .shape = "B,L,Q*", .role = Role::grad_input, .terms = "2 + D + L + W"},
      {.name = "grad_k", .shape = "B,L,K*", .role = Role::grad_input, .terms = "2 + D + rows + W"},
      {.name = "grad_v", .shape = "B,L,V*", .role = Role::grad_input, .terms = "2 + D + rows"},
      {.name = "grad_sink",
       .shape = "Z",
       .role = Role::grad_input,
       .optional = true,
       .terms = "2 + D + W + B L"},
  };
  static constexpr Example examples[] = {
      {"B=2,L=2,Q=8,K=4,V=2,T=2,C=2,Z=4", "", "cis,mask"},
      {"B=2,L=3,Q=8,K=4,V=2,T=2x3,C=2,U=2", "", "cos,sin,sink,mask"},
      {"B=1,L=4,Q=2x6,K=1x6,V=3,T=1x5x1,C=4", "style=\"interleaved\",is_causal=false,scale=0.5",
       "cis,sink,mask"},
      {"B=2,L=3,Q=2x6,K=1x6,V=3,T=2x1x4,C=2", "style=\"half_of_pairs\"", "cis,sink,mask"},
      {"B=2,L=4,Q=2,K=1,D=6,V=3,T=1x4,C=4", "heads_first=true", "cis,sink,mask"},
      {"B=1,L=3,Q=3x2,K=1x2,V=2,T=1x3,C=2,Z=3", "alibi=\"last_key\"", "cos,sin,cis,mask"},
      {"B=2,L=7,Q=2x6,K=1x6,V=3,M=2x7", "is_causal=false", "cos,sin,cis,sink"},
      {"B=2,L=7,Q=2x6,K=1x6,V=3,M=1x2x7x7", "", "cos,sin,cis,sink"}};
  static constexpr std::string_view functional_inputs[] = {"q", "k", "v", "cos", "sin", "sink", "mask"},
                                    functional_instead[] = {"q", "k", "v", "cis", "sink", "mask"};
  static constexpr std::string_view causal_along = "L";  // if is_causal, as in its first variant
  static constexpr bool shares_steps = true;
  static constexpr Narrowing narrowing = Narrowing::to_result;
  static constexpr std::string_view linear_in = "v";
  static constexpr Seen seen[] = {
      {"style", "\"interleaved\"", "Cohere, GPT-J"},
      {"style", "\"by_pair\"", "ERNIE 4.5, GLM-4"},
      {"style", "\"half_of_pairs\"", "FlashAttention's rotary"},
      {"style", "\"interleaved_of_pairs\"", "its other one, Llama in real numbers"},
      {"softcap", "50", "Gemma 2"},
      {"is_causal", "false", "encoders"}};
  static constexpr Seen mistaken[] = {{"is_causal", "false", "a mask that is left out"},
                                      {"style", "\"half\"", "pairs of another layout"},
                                      {"style", "\"by_pair\"", "neighbours by the tables of halves"},
                                      {"window_size", "[-1, -1]", "a window that is left out"},
                                      alibi_left_out,
                                      alibi_unscaled,
                                      alibi_scaled,
                                      alibi_twice,
                                      alibi_of_all_heads,
                                      alibi_from_one,
                                      alibi_max_8};
  static constexpr Steered steered = {"scale", "q", "W"};
  static constexpr Solved solved[] = {
      {.attribute = "scale", .by = Solved::By::bisection, .low = 1e-3, .high = 1e1},
      {.attribute = "head_dim",
       .by = Solved::By::candidates,
       .how = "every divisor of the channels of k, where heads are not apart"},
      alibi_solved};
  static constexpr OtherValues other_values = {"window_size", wrong_windows, windows_by_tokens};

  static std::string_view shape_of(const Arg& arg, const Attributes& a) {
    if (a.flag("heads_first")) {
      const std::string_view name = arg.name.starts_with("grad_") ? arg.name.substr(5) : arg.name;
      if (name == "q") return "B,Q,L,D";
      if (name == "k") return "B,K,L,D";
    }
    return arg.shape;
  }

  // Where v has the tokens and q has them behind its heads.
  static bool has_heads_first(const Shape& q, const Shape& v) {
    return q.size() == 4 && v.size() > 1 && q[1] != v[1] && q[2] == v[1];
  }
  static void infer(Recorded& call) {
    const Tensor *q = call.input("q"), *v = call.input("v");
    if (q != nullptr && v != nullptr && has_heads_first(q->shape(), v->shape()))
      call.attributes.set("heads_first", true);
    infer_unseen(call);
  }

  static std::vector<std::int64_t> steps_apart(std::string_view output, const Shape& shape, const Dims& d,
                                               const Attributes& a) {
    return by_groups(shape, d, a.flag("heads_first") && (output == "grad_q" || output == "grad_k"));
  }

  // O of Q / D heads with V / (K / D) channels each.
  static bool may_make(InputShapes inputs, const Shape& out) {
    const Shape& q = shape_of_input(inputs, "q");
    const Shape& v = shape_of_input(inputs, "v");
    const bool heads_first = has_heads_first(q, v);
    const std::int64_t Q = channels_by(q, heads_first),
                       K = channels_by(shape_of_input(inputs, "k"), heads_first), V = channels_of(v);
    return K > 0 && Q % K == 0 && Q / K * V == channels_of(out) &&
           (q.size() != 4 || (q[3] > 0 && K % q[3] == 0));
  }

  static std::vector<Candidate> candidates(const Attributes& seen, const Recorded& call) {
    std::vector<Candidate> heads;
    const Tensor *q = call.input("q"), *k = call.input("k");
    if (q == nullptr || k == nullptr || (!has_tables(call) && seen.has("style"))) return heads;
    const std::int64_t K = channels_of(k->shape());
    for (std::int64_t D = least_channels(call); D <= K && q->shape().size() == 3; ++D) {
      if (K % D == 0)
        heads.push_back({{{"head_dim", static_cast<double>(D)}}, fmt::format("head_dim = {}", D)});
    }
    return may_have_alibi(seen, call) ? or_with_alibi(std::move(heads)) : heads;
  }

  static bool goes_with(InputShapes before, const InputShape& next) {
    const InputShape* v = find_input(before, "v");
    if (next.name == "mask")
      return v == nullptr || mask_goes_with(next.shape, v->shape[0], v->shape[1], v->shape[1]);
    return goes_with_tokens("v", before, next);
  }

  static void bind(Dims& d, InputShapes inputs, const Attributes& a) {
    const Shape &q = shape_of_input(inputs, "q"), &k = shape_of_input(inputs, "k"),
                &v = shape_of_input(inputs, "v");
    if (q.size() < 3 || k.size() < 3 || v.size() < 3) {
      throw Error("rotary_attention: q has shape {}, k {}, v {}; expected [B, L, ..]", to_string(q),
                  to_string(k), to_string(v));
    }
    const bool heads_first = a.flag("heads_first");
    const std::int64_t R = bind_tables(d, name, inputs, q[0], q[heads_first ? 2 : 1], a);
    if (R == 0 && q.size() != 4 && !a.has("head_dim"))
      throw Error("rotary_attention: attribute 'head_dim' is missing; neither heads nor tables show it");
    const std::int64_t D = a.has("head_dim") ? a.integer("head_dim") : q.size() == 4 ? q[3] : R;
    const std::int64_t of_q = channels_by(q, heads_first), of_k = channels_by(k, heads_first),
                       of_v = channels_of(v);
    if (D < 1 || D < R || of_q % D != 0 || of_k % D != 0 || of_k == 0 || of_q % of_k != 0 ||
        of_v % (of_k / D) != 0) {
      throw Error(
          "rotary_attention: q has {} channels, k {}, v {}, of which {} of {} turn in a head; expected whole "
          "heads, those of k as many as those of v and a divisor of those of q",
          of_q, of_k, of_v, R, D);
    }
    const std::int64_t heads = of_q / D, groups = of_k / D, W = of_v / groups;
    d.set("D", D);
    d.set("W", W);
    d.set("heads", heads);
    d.set("groups", groups);
    d.set("rows", heads / groups * q[heads_first ? 2 : 1]);
    d.set("O", Shape{heads * W});
    check_mask(name, inputs, {q[0], heads, q[heads_first ? 2 : 1], q[heads_first ? 2 : 1]});
    const InputShape* sink = find_input(inputs, "sink");
    if (sink != nullptr && sink->shape != Shape{heads})
      throw Error("rotary_attention: sink has shape {} for {} heads", to_string(sink->shape), heads);
  }

  template <class T>
  static InnerAttention<T> attention(Tensors<T>& t, const Dims& d, const Attributes& a) {
    const std::int64_t H = d.at("heads"), G = d.at("groups");
    InnerAttention<T> inner = {d, of_attention(a),
                               turned(heads_of(t, "q", d, a, H), t, d, turn_of(d, a), H, false),
                               turned(heads_of(t, "k", d, a, G), t, d, turn_of(d, a), G, false),
                               by_head(t["v"].data(), d, G, d.at("W"), false)};
    if (t.has("sink")) inner.take_sink(t.slot("sink").values);
    inner.take_mask_of(t);
    return inner;
  }
  template <class T>
  static std::vector<T> heads_of(Tensors<T>& t, std::string_view name, const Dims& d, const Attributes& a,
                                 std::int64_t heads) {
    if (a.flag("heads_first")) return t.slot(name).values;
    return by_head(t[name].data(), d, heads, d.at("D"), false);
  }

  template <class T>
  static void give(Tensors<T>& t, std::string_view to, std::vector<T> values) {
    std::ranges::move(values, t[to].data());
  }

  template <class T>
  static void forward(Tensors<T>& t, const Dims& d, const Attributes& a) {
    if (t.has("grad_out")) return;  // backward makes it on its way
    InnerAttention<T> inner = attention(t, d, a);
    inner.run();
    give(t, "out", by_head(inner.made("out").data(), d, d.at("heads"), d.at("W"), true));
  }

  template <class T>
  static void backward(Tensors<T>& t, const Dims& d, const Attributes& a) {
    const std::int64_t H = d.at("heads"), G = d.at("groups"), D = d.at("D"), W = d.at("W");
    InnerAttention<T> inner = attention(t, d, a);
    inner.take_gradient(by_head(t["grad_out"].data(), d, H, W, false));
    inner.run();
    give(t, "out", by_head(inner.made("out").data(), d, H, W, true));
    const std::vector<T> q = turned(inner.kept("grad_q"), t, d, turn_of(d, a), H, true),
                         k = turned(inner.kept("grad_k"), t, d, turn_of(d, a), G, true);
    const bool heads_first = a.flag("heads_first");
    give(t, "grad_q", heads_first ? q : by_head(q.data(), d, H, D, true));
    give(t, "grad_k", heads_first ? k : by_head(k.data(), d, G, D, true));
    give(t, "grad_v", by_head(inner.made("grad_v").data(), d, G, W, true));
    if (t.has("sink")) give(t, "grad_sink", inner.made("grad_sink"));
  }
};

}  // namespace

namespace ops {
extern constexpr Operator rotary_attention = describe<RotaryAttention>();
}

}  // namespace assay
