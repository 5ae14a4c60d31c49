#include "assay/operators/engine/turned_heads.h"

namespace assay {
namespace {

// B sequences of L tokens. Q*, K*, V*, O*: channels, of all heads side by side or by head; heads have D of
// them in q and k, W in v and out. The first R of D turn, by the first L rows of tables [B, M, C], or [M, C]
// for all sequences alike, with extents of 1 anywhere in T*; without tables none does. C is R, or R/2 where a
// pair has one column. cis: cos + i sin of C = R/2 pairs (2i, 2i + 1), U = 2 numbers for each, whatever the
// style. Z: the heads of q. mask: which keys are there.
struct RotaryAttention : TurnedHeads {
  static constexpr std::string_view name = "rotary_attention";
  static constexpr std::string_view math =
      "out = attention(turn(q), turn(k), v, sink), turn(x) = x cos + swap(x) sin; swap(x) = (-x_j, x_i) in "
      "each pair";
  static constexpr std::string_view source =
      "arXiv:2104.09864 eq. 34, arXiv:1706.03762 eq. 1; sink arXiv:2508.10925; Hugging Face "
      "transformers apply_rotary_pos_emb and "
      "eager_attention_forward";
  static constexpr Attribute attributes[] = {
      head_dim_attribute,
      heads_first_attribute,
      {"style", "\"half\"",
       "pairs are half: (i, i + R/2), or interleaved: (2i, 2i + 1), or by_pair: those of interleaved, pair i "
       "by column i of the tables; half_of_pairs and interleaved_of_pairs: tables have a column for each "
       "pair, R/2"},
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

  static void bind(Dims& d, InputShapes inputs, const Attributes& a) {
    bind_heads(name, d, inputs, a);
    const InputShape* sink = find_input(inputs, "sink");
    if (sink != nullptr && sink->shape != Shape{d.at("heads")})
      throw Error("rotary_attention: sink has shape {} for {} heads", to_string(sink->shape), d.at("heads"));
  }

  template <class T>
  static InnerAttention<T> with_sink(Tensors<T>& t, const Dims& d, const Attributes& a) {
    InnerAttention<T> inner = attention(t, d, a);
    if (t.has("sink")) inner.take_sink(t.slot("sink").values);
    return inner;
  }

  template <class T>
  static void forward(Tensors<T>& t, const Dims& d, const Attributes& a) {
    if (t.has("grad_out")) return;  // backward makes it on its way
    InnerAttention<T> inner = with_sink(t, d, a);
    inner.run();
    give_out(t, d, inner.made("out"));
  }

  template <class T>
  static void backward(Tensors<T>& t, const Dims& d, const Attributes& a) {
    InnerAttention<T> inner = with_sink(t, d, a);
    inner.take_gradient(by_head(t["grad_out"].data(), d, d.at("heads"), d.at("W"), false));
    inner.run();
    give_out(t, d, inner.made("out"));
    give_gradients(t, d, a, inner);
    if (t.has("sink")) give(t, "grad_sink", inner.made("grad_sink"));
  }
};

}  // namespace

namespace ops {
extern constexpr Operator rotary_attention = describe<RotaryAttention>();
}

}  // namespace assay
