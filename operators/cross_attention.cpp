#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "assay/golden/error.h"
#include "assay/operators/engine/recorded.h"
#include "assay/operators/engine/rotary_attention.h"

namespace assay {
namespace {

// B sequences of L queries, which see all of S keys, or those that mask has. Q*, K*, V*, O*: channels, of all
// heads side by side or by head; heads have D of them in q and k, W in v and out.
struct CrossAttention {
  static constexpr std::string_view name = "cross_attention";
  static constexpr std::string_view math = "out = attention(q, k, v), of queries and keys of two sequences";
  static constexpr std::string_view source =
      "arXiv:1706.03762 sec. 3.2.3; Hugging Face transformers eager_attention_forward";
  static constexpr Attribute attributes[] = {
      {"head_dim", "null", "D; null: the last extent of q where it is given by head"},
      {"scale", "null", "factor of q k^T; null: 1 / sqrt(D)"},
      unseen_attribute};
  static constexpr Arg args[] = {
      {"q", "B,L,Q*", Role::input},
      {"k", "B,S,K*", Role::input},
      {"v", "B,S,V*", Role::input},
      mask_argument,
      {"grad_out", "B,L,O*", Role::grad_output},
      {.name = "out", .shape = "B,L,O*", .role = Role::output, .terms = "2 + D + S"},
      {.name = "grad_q", .shape = "B,L,Q*", .role = Role::grad_input, .terms = "2 + D + S + W"},
      {.name = "grad_k", .shape = "B,S,K*", .role = Role::grad_input, .terms = "2 + D + rows + W"},
      {.name = "grad_v", .shape = "B,S,V*", .role = Role::grad_input, .terms = "2 + D + rows"},
  };
  static constexpr Example examples[] = {{"B=1,L=3,S=2,Q=8,K=4,V=2", "head_dim=4", "mask"},
                                         {"B=2,L=2,S=3,Q=2x2,K=1x2,V=3", "scale=0.5", "mask"},
                                         {"B=2,L=2,S=8,Q=2x2,K=1x2,V=3,M=2x8"}};
  static constexpr std::string_view functional_inputs[] = {"q", "k", "v", "mask"};
  static constexpr bool shares_steps = true;
  static constexpr Narrowing narrowing = Narrowing::to_result;
  static constexpr std::string_view linear_in = "v";
  static constexpr Steered steered = {"scale", "q", "W"};
  static constexpr Solved solved[] = {
      {.attribute = "scale", .by = Solved::By::bisection, .low = 1e-3, .high = 1e1},
      {.attribute = "head_dim",
       .by = Solved::By::candidates,
       .how = "every divisor of the channels of k, where heads are not apart"}};

  static std::vector<std::int64_t> steps_apart(std::string_view, const Shape& shape, const Dims& d,
                                               const Attributes&) {
    return by_groups(shape, d, false);
  }

  // As many keys as queries may be those of one sequence, of which another operator knows more.
  static bool may_make(InputShapes inputs, const Shape& out) {
    const Shape &q = shape_of_input(inputs, "q"), &k = shape_of_input(inputs, "k");
    const std::int64_t Q = channels_of(q), K = channels_of(k), V = channels_of(shape_of_input(inputs, "v"));
    return q.size() > 2 && k.size() > 2 && q[1] != k[1] && K > 0 && Q % K == 0 &&
           Q / K * V == channels_of(out) && (q.size() != 4 || (q[3] > 0 && K % q[3] == 0));
  }

  static bool goes_with(InputShapes before, const InputShape& next) {
    const InputShape *q = find_input(before, "q"), *k = find_input(before, "k");
    return next.name != "mask" || q == nullptr || k == nullptr ||
           mask_goes_with(next.shape, q->shape[0], q->shape[1], k->shape[1]);
  }
  static void infer(Recorded& call) { infer_unseen(call); }

  static std::vector<Candidate> candidates(const Attributes&, const Recorded& call) {
    std::vector<Candidate> heads;
    const Tensor *q = call.input("q"), *k = call.input("k");
    if (q == nullptr || k == nullptr) return heads;
    const std::int64_t K = channels_of(k->shape());
    for (std::int64_t D = 1; D <= K && q->shape().size() == 3; ++D) {
      if (K % D == 0)
        heads.push_back({{{"head_dim", static_cast<double>(D)}}, fmt::format("head_dim = {}", D)});
    }
    return heads;
  }

  static void bind(Dims& d, InputShapes inputs, const Attributes& a) {
    const Shape &q = shape_of_input(inputs, "q"), &k = shape_of_input(inputs, "k"),
                &v = shape_of_input(inputs, "v");
    if (q.size() < 3 || k.size() < 3 || v.size() < 3) {
      throw Error("cross_attention: q has shape {}, k {}, v {}; expected [B, L, ..] and [B, S, ..]",
                  to_string(q), to_string(k), to_string(v));
    }
    if (q.size() != 4 && !a.has("head_dim"))
      throw Error("cross_attention: attribute 'head_dim' is missing; no heads show it");
    const std::int64_t D = a.has("head_dim") ? a.integer("head_dim") : q[3];
    const std::int64_t of_q = channels_of(q), of_k = channels_of(k), of_v = channels_of(v);
    if (D < 1 || of_q % D != 0 || of_k % D != 0 || of_k == 0 || of_q % of_k != 0 || of_v % (of_k / D) != 0) {
      throw Error(
          "cross_attention: q has {} channels, k {}, v {}, with {} in a head; expected whole heads, those of "
          "k "
          "as many as those of v and a divisor of those of q",
          of_q, of_k, of_v, D);
    }
    const std::int64_t heads = of_q / D, groups = of_k / D, W = of_v / groups;
    d.set("D", D);
    d.set("W", W);
    d.set("heads", heads);
    d.set("groups", groups);
    d.set("rows", heads / groups * q[1]);
    d.set("O", Shape{heads * W});
    check_mask(name, inputs, {q[0], heads, q[1], k[1]});
  }

  static Attributes of_inner(const Attributes& a) {
    Attributes given = {{"is_causal", false}};
    if (a.has("scale")) given.set("scale", a.real("scale"));
    given.set("unseen", a.text("unseen"));
    return complete_attributes(ops::attention, given);
  }
  template <class T>
  static InnerAttention<T> attention(Tensors<T>& t, const Dims& d, const Attributes& a) {
    const std::int64_t H = d.at("heads"), G = d.at("groups"), D = d.at("D");
    InnerAttention<T> inner = {d, of_inner(a), by_head(t["q"].data(), d, H, D, false),
                               by_head(t["k"].data(), d, G, D, false, "S"),
                               by_head(t["v"].data(), d, G, d.at("W"), false, "S")};
    inner.take_mask_of(t);
    return inner;
  }
  template <class T>
  static void give(Tensors<T>& t, std::string_view to, const std::vector<T>& by_heads, const Dims& d,
                   std::int64_t heads, std::int64_t C, std::string_view tokens) {
    std::ranges::move(by_head(by_heads.data(), d, heads, C, true, tokens), t[to].data());
  }

  template <class T>
  static void forward(Tensors<T>& t, const Dims& d, const Attributes& a) {
    if (t.has("grad_out")) return;  // backward makes it on its way
    InnerAttention<T> inner = attention(t, d, a);
    inner.run();
    give(t, "out", inner.made("out"), d, d.at("heads"), d.at("W"), "L");
  }

  template <class T>
  static void backward(Tensors<T>& t, const Dims& d, const Attributes& a) {
    const std::int64_t H = d.at("heads"), G = d.at("groups"), D = d.at("D"), W = d.at("W");
    InnerAttention<T> inner = attention(t, d, a);
    inner.take_gradient(by_head(t["grad_out"].data(), d, H, W, false));
    inner.run();
    give(t, "out", inner.made("out"), d, H, W, "L");
    give(t, "grad_q", inner.made("grad_q"), d, H, D, "L");
    give(t, "grad_k", inner.made("grad_k"), d, G, D, "S");
    give(t, "grad_v", inner.made("grad_v"), d, G, W, "S");
  }
};

}  // namespace

namespace ops {
extern constexpr Operator cross_attention = describe<CrossAttention>();
}

}  // namespace assay
